use std::time::Duration;

/// `base`, give or take a quarter: those who failed together do not come back together.
pub(super) fn jittered(base: Duration) -> Duration {
    let mut random = [0];
    let _ = getrandom::fill(&mut random);
    base.mul_f64(0.75 + 0.5 * f64::from(random[0]) / 255.0)
}
