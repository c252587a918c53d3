//! Conversions of numbers that always fit, and parts of buffers that always exist.
//!
//! Another limit or rule guarantees that a number fits and that a part exists; each call names this
//! limit or rule. Anything else is a bug in Weir, which causes a panic, so that no wrong number and
//! no empty value gets into a log or a table.

use std::slice::SliceIndex;

macro_rules! conversions {
    ($($name:ident $to:ident $what:literal,)*) => {$(
        #[doc = concat!("`number` as `", stringify!($to), "`. `why` names that limit.")]
        ///
        /// # Panics
        /// If the number does not fit.
        #[inline]
        #[track_caller]
        pub fn $name<N>(number: N, why: &str) -> $to
        where
            $to: TryFrom<N>,
        {
            let Ok(number) = $to::try_from(number) else {
                panic!(concat!("does not fit ", $what, ", although {}"), why)
            };
            number
        }
    )*};
}

conversions! {
    to_u8 u8 "8 bits",
    to_u16 u16 "16 bits",
    to_u32 u32 "32 bits",
    to_i32 i32 "32 bits with a sign",
    to_i64 i64 "64 bits with a sign",
    to_usize usize "the memory of this machine",
}

/// The part of `whole` in `range`. `why` names the rule that guarantees the range.
///
/// # Panics
/// If the range is not inside.
#[inline]
#[track_caller]
pub fn part<'a, T, R>(whole: &'a [T], range: R, why: &str) -> &'a [T]
where
    R: SliceIndex<[T], Output = [T]>,
{
    let Some(part) = whole.get(range) else {
        panic!(
            "a range is outside of {} items, although {why}",
            whole.len()
        )
    };
    part
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

    #[test]
    #[should_panic(expected = "outside of 3 items, although a test says so")]
    fn a_range_outside_of_its_buffer_is_a_panic() {
        assert_eq!(part(b"abc", 1..3, "it ends with the buffer"), b"bc");
        part(b"abc", 2..4, "a test says so");
    }
}
