//! Which goods somebody outside holds on to, so that orders that want them wait aside instead of making every batch wait.
//!
//! A database does not say whose row a statement waited for. But whoever wants all that a waiting order wants will wait
//! as well; and when an order has been settled, all that it wanted was free.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::order::decide::Asked;
use crate::order::values::Sku;

/// What one order wants.
pub(super) type Goods = BTreeSet<Sku>;

/// The goods of each order that waits aside.
#[derive(Default)]
pub(super) struct Held(Mutex<Vec<Goods>>);

pub(super) fn goods(asked: &Asked) -> Goods {
    asked.request.lines.iter().map(|line| line.sku.clone()).collect()
}

impl Held {
    /// An order of these found one of them held, and waits.
    pub(super) fn waits(&self, goods: Goods) {
        self.sets().push(goods);
    }

    /// It waits no longer. `settled`: all of these were free; those that wait for the same will find out by themselves.
    pub(super) fn leaves(&self, goods: &Goods, settled: bool) {
        let mut sets = self.sets();
        if settled {
            sets.retain(|waiting| !waiting.is_subset(goods));
        } else if let Some(at) = sets.iter().position(|waiting| waiting == goods) {
            sets.swap_remove(at);
        }
    }

    /// Whether this order would have to wait too.
    pub(super) fn stops(&self, asked: &Asked) -> bool {
        let sets = self.sets();
        // Nearly always nobody waits: then nothing is put together.
        !sets.is_empty() && stopped(&sets, &goods(asked))
    }

    fn sets(&self) -> MutexGuard<'_, Vec<Goods>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stopped(sets: &[Goods], goods: &Goods) -> bool {
    sets.iter().any(|waiting| waiting.is_subset(goods))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(skus: &str) -> Goods {
        skus.split(' ').map(|sku| Sku::parse(sku).unwrap()).collect()
    }

    fn stops(held: &Held, goods: &Goods) -> bool {
        stopped(&held.sets(), goods)
    }

    #[test]
    fn who_wants_all_that_a_waiting_order_wants_waits_too_and_nobody_else() {
        let held = Held::default();
        held.waits(of("A B"));
        assert!(stops(&held, &of("A B")) && stops(&held, &of("A B C")));
        assert!(!stops(&held, &of("A")) && !stops(&held, &of("B C")) && !stops(&held, &of("C")));
        held.waits(of("A"));
        assert!(stops(&held, &of("A C")) && !stops(&held, &of("B C")));
    }

    #[test]
    fn what_was_settled_was_free() {
        let held = Held::default();
        for waiting in ["A", "A", "A B", "A C"] {
            held.waits(of(waiting));
        }
        held.leaves(&of("A B"), true);
        assert!(!stops(&held, &of("A")) && !stops(&held, &of("A B")));
        assert!(stops(&held, &of("A C")), "nothing is known of C");
    }

    #[test]
    fn who_gives_up_is_one_less_that_waits() {
        let held = Held::default();
        held.waits(of("A"));
        held.waits(of("A"));
        held.leaves(&of("A"), false);
        assert!(stops(&held, &of("A")));
        held.leaves(&of("A"), false);
        assert!(!stops(&held, &of("A")));
        held.leaves(&of("A"), false);
    }
}
