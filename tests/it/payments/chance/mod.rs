//! Histories of a whole shop that nobody thought of: buyers and clients who repeat, leave, pay, call off; a provider whose
//! word comes twice, late, wrongly or never; processes that are killed at any moment. After every step the invariants
//! hold, and when all has come to rest each intent has its one answer and the provider's log is what the tables say.
//!
//! The same few histories each time; `PROPTEST_RNG_SEED` and `PROPTEST_CASES` look further. A history that breaks
//! something is shown as it was, with what the service has said, and then as short as proptest can make it.

mod deeds;
mod plan;
mod rest;
mod world;

use std::sync::Arc;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use plan::{Plan, a_plan};
use world::World;

/// Few enough for every day.
const CASES: u32 = 3;
/// How long a history is at most.
const STEPS: usize = 24;
/// A whole history has to be run for each try to shorten it.
const SHRINK_MILLIS: u32 = 60_000;

/// Runs histories; which they are is up to `seed`, unless the environment says otherwise.
fn histories(seed: u64) {
    let given = Config::default();
    let config = Config {
        cases: std::env::var("PROPTEST_CASES").map_or(CASES, |_| given.cases),
        rng_seed: std::env::var("PROPTEST_RNG_SEED").map_or(RngSeed::Fixed(seed), |_| given.rng_seed),
        failure_persistence: None,
        max_shrink_time: SHRINK_MILLIS,
        ..given
    };
    let seed = config.rng_seed;
    let outcome = TestRunner::new(config).run(&a_plan(STEPS), |plan| run(plan).map_err(TestCaseError::fail));
    if let Err(broken) = outcome {
        panic!("seed {seed:?}: {broken}");
    }
}

/// One history, in a shop of its own.
fn run(plan: Plan) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // A task of its own, so that a panic can be looked into; on this thread, as it holds what no other thread may.
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let world = Arc::new(World::open(&plan).await);
        let shown = format!("{plan:#?}");
        let history = tokio::task::spawn_local({
            let world = world.clone();
            async move {
                for (n, step) in plan.steps.iter().enumerate() {
                    world.says(format!("--- step {n}: {step:?}"));
                    world.clone().take(step).await;
                    world.shop.site.holds_with_cards().await;
                }
                world.says("--- rest".to_owned());
                world.comes_to_rest().await;
            }
        });
        let Err(broken) = history.await else { return Ok(()) };
        let broken = broken.into_panic();
        let why = broken.downcast_ref::<String>().cloned();
        let why = why.or_else(|| broken.downcast_ref::<&str>().map(|words| (*words).to_owned()));
        println!("{shown}\n{}", world.story().await);
        Err(why.unwrap_or_default())
    })
}

#[test]
fn whatever_happens_in_a_shop_each_intent_becomes_one_order_and_one_charge() {
    histories(1);
}

/// A second handful, which runs beside the first.
#[test]
fn whatever_else_happens_in_a_shop_each_intent_becomes_one_order_and_one_charge() {
    histories(2);
}
