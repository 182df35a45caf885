//! Writes the key's Secret, and removes the one that the key has moved out of.

use crate::api::Error;
use crate::context::Context;

use super::plan::Plan;

/// The new place first: a key is never without a Secret.
pub(super) async fn apply(ctx: &Context, plan: &Plan) -> Result<(), Error> {
    plan.secret.run(&ctx.cluster).await?;
    plan.former.run(&ctx.cluster).await
}
