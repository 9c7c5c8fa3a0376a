//! What a core lends to its upstreams: pools by key, counters, and random numbers.
//!
//! This is all that this folder needs of a core, so it need not know what a core is.

use super::balance::Random;
use super::pool::{Pool, PoolKey};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use weir_telemetry::CoreCells;

/// What a core lends to its upstreams.
pub struct Resources {
    pub(super) cells: Arc<CoreCells>,
    random: RefCell<Random>,
    pools: RefCell<HashMap<PoolKey, Weak<Pool>>>,
}

impl Resources {
    /// The resources of one core: its counters, and random numbers from this seed.
    pub fn new(cells: Arc<CoreCells>, seed: u64) -> Rc<Self> {
        Rc::new(Self { cells, random: RefCell::new(Random::new(seed)), pools: RefCell::default() })
    }

    /// The pool of a key. It exists while an upstream uses it.
    #[inline]
    pub(super) fn pool(&self, key: PoolKey) -> Rc<Pool> {
        let mut pools = self.pools.borrow_mut();
        if let Some(pool) = pools.get(&key).and_then(Weak::upgrade) {
            return pool;
        }
        let pool = Rc::new(Pool::default());
        pools.insert(key, Rc::downgrade(&pool));
        pool
    }

    /// Forgets keys that no upstream uses any more.
    pub fn forget_unused(&self) {
        self.pools.borrow_mut().retain(|_, pool| pool.strong_count() > 0);
    }

    /// Any number.
    #[inline]
    pub(super) fn random(&self) -> u32 {
        (self.random.borrow_mut().next() >> 32) as u32
    }

    /// A seed for another generator of random numbers.
    #[inline]
    pub(super) fn seed(&self) -> u64 {
        self.random.borrow_mut().next()
    }

    /// 90 to 100 % of an age, so that connections made together do not end together.
    #[inline]
    pub(super) fn jittered(&self, age: Duration) -> Duration {
        age.mul_f64(1.0 - f64::from(self.random.borrow_mut().below(1000)) / 10_000.0)
    }
}
