//! Makes the cluster hold what the plan says, in an order in which nothing ever stands open.

use crate::api::Error;
use crate::context::Context;
use crate::controllers::summary::Obstacle;
use chandlery_crds::conditions::reason;

use super::observe::{Gateway as Seen, Observed};
use super::plan::{Gateway, Plan};

/// Applies the plan. What the API server says against an object itself comes back as an obstacle: it is for the
/// Workspace's owner to read, and does not keep the other objects from being applied.
pub(super) async fn apply(
    ctx: &Context,
    plan: &Plan,
    observed: &Observed,
) -> Result<Vec<Obstacle>, Error> {
    let mut obstacles = Obstacles::default();
    if let Some(gateway) = &plan.gateway {
        apply_gateway(ctx, gateway, &observed.gateway, &mut obstacles).await?;
    }
    obstacles.take(plan.key_secret.run(&ctx.cluster).await)?;
    Ok(obstacles.0)
}

async fn apply_gateway(
    ctx: &Context,
    gateway: &Gateway,
    seen: &Seen,
    obstacles: &mut Obstacles,
) -> Result<(), Error> {
    let Gateway {
        service_account,
        role,
        role_binding,
        policy,
        own_secret,
        claim,
        service,
        deployment,
        budget,
    } = gateway;
    let Context {
        cluster, applied, ..
    } = ctx;
    // The fence before what it fences in; what the pods need before the pods.
    obstacles.take(applied.ensure(cluster, policy, &seen.policy).await)?;
    obstacles.take(
        applied
            .ensure(cluster, service_account, &seen.service_account)
            .await,
    )?;
    obstacles.take(applied.ensure(cluster, role, &seen.role).await)?;
    obstacles.take(
        applied
            .ensure(cluster, role_binding, &seen.role_binding)
            .await,
    )?;
    obstacles.take(own_secret.run(cluster).await)?;
    // A claim that is not wanted stays: it may hold what a Workspace of this name, deleted long ago, left behind.
    if let Some(claim) = claim {
        obstacles.take(applied.ensure(cluster, claim, &seen.claim).await)?;
    }
    obstacles.take(applied.ensure(cluster, service, &seen.service).await)?;
    obstacles.take(applied.ensure(cluster, deployment, &seen.deployment).await)?;
    let budget = budget.as_ref();
    obstacles.take(
        applied
            .ensure_or_delete(cluster, budget, &seen.budget)
            .await,
    )
}

#[derive(Default)]
struct Obstacles(Vec<Obstacle>);

impl Obstacles {
    fn take(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Err(error) => match error.refusal() {
                Some(message) => {
                    self.0.push(Obstacle::stalled(
                        reason::INVALID,
                        message.chars().take(1024).collect::<String>(),
                    ));
                    Ok(())
                }
                None => Err(error),
            },
            Ok(()) => Ok(()),
        }
    }
}
