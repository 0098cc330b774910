//! Random numbers for tests. With the same seed, the generator gives the same numbers on every machine and with every
//! version of the dependencies.

/// A random number generator. Equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws the next number (SplitMix64).
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `sides` - 1.
    pub fn below(&mut self, sides: u64) -> u64 {
        self.draw() % sides
    }

    /// Returns a number from 0 to `sides` - 1, as a `u8`.
    pub fn small(&mut self, sides: u8) -> u8 {
        u8::try_from(self.below(sides.into())).expect("below 256")
    }

    /// Returns an index from 0 to `len` - 1.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("a length")
    }

    /// Returns true with probability 1 / `in_so_many`.
    pub fn one_in(&mut self, in_so_many: u64) -> bool {
        self.below(in_so_many) == 0
    }

    /// Picks an element.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// Picks a choice with a probability in proportion to its weight.
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

    /// Fills `bytes` with random values.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.draw().to_be_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
}
