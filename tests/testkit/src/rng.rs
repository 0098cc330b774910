//! Random numbers of tests: a small generator of our own, so that a seed means the same on every machine and with every
//! version of every crate.

/// A generator: the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of that seed.
    pub const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `sides` - 1.
    pub fn below(&mut self, sides: u64) -> u64 {
        self.draw() % sides
    }

    /// From 0 to `sides` - 1, for what is counted in small numbers.
    pub fn small(&mut self, sides: u8) -> u8 {
        u8::try_from(self.below(sides.into())).expect("below 256")
    }

    /// From 0 to `len` - 1.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("a length")
    }

    /// Whether one of `in_so_many` throws hits.
    pub fn one_in(&mut self, in_so_many: u64) -> bool {
        self.below(in_so_many) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// One of these, as often as its weight says.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let mut left = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            match left.checked_sub(*weight) {
                None => return *choice,
                Some(rest) => left = rest,
            }
        }
        unreachable!("the weights sum to more than what was drawn")
    }

    /// Fills these bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.draw().to_be_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
}
