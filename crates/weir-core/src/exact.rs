//! Conversions of numbers that always fit.
//!
//! A limit elsewhere makes sure of it, and each call says which one. A number
//! that does not fit is a mistake of ours: a panic, and never another number in
//! a log or a table.

/// `number` as `u32`. `why` says what makes it fit.
///
/// # Panics
/// When it does not fit.
#[inline]
#[track_caller]
pub fn to_u32<N>(number: N, why: &str) -> u32
where
    u32: TryFrom<N>,
{
    let Ok(number) = u32::try_from(number) else {
        panic!("does not fit 32 bits, although {why}")
    };
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "although a test says so")]
    fn a_number_that_does_not_fit_is_a_panic() {
        assert_eq!(to_u32(u64::from(u32::MAX), "it is the largest"), u32::MAX);
        to_u32(1_u64 << 32, "a test says so");
    }
}
