//! Seeded randomness of the fault runs: the same seed makes the same plan.

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The generator of one point of a run, independent of how the points are spread over workers.
    pub fn of(seed: u64, point: u64) -> Self {
        let mut mixed = Self(seed ^ point.wrapping_mul(0xd134_2543_de82_ef95));
        mixed.next();
        mixed
    }

    /// 64 random bits.
    #[allow(
        clippy::should_implement_trait,
        reason = "it never ends, and nobody iterates over it"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, nearly uniform; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Yes, in so many of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_depends_on_the_seed_and_its_number_only() {
        let draw = |seed, point| {
            let mut chance = Chance::of(seed, point);
            [
                chance.next(),
                chance.below(1_000),
                u64::from(chance.percent(50)),
            ]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }
}
