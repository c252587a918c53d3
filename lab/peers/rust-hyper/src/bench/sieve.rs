//! Primes up to a number, and the FNV-1a of all of them: work with little memory traffic, by a
//! plain loop over a byte for each odd number.

const N_MAX: usize = 10_000_000;
const N: usize = 100_000;

/// The `n` of a query; `None` if it is not a number or out of range.
pub(super) fn read(query: Option<&str>) -> Option<usize> {
    let Some(query) = query else { return Some(N) };
    let digits = query.strip_prefix("n=")?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|n| (1..=N_MAX).contains(n))
}

pub(super) fn answer(n: usize) -> Vec<u8> {
    // Byte i represents the number 2i + 1; false: no divisor was found yet.
    let mut divided = vec![false; n.div_ceil(2)];
    let mut i = 1;
    while (2 * i + 1) * (2 * i + 1) <= n {
        if !divided[i] {
            let mut k = 2 * i * (i + 1);
            while k < divided.len() {
                divided[k] = true;
                k += 2 * i + 1;
            }
        }
        i += 1;
    }
    let (mut primes, mut sum) = (0, 0xCBF2_9CE4_8422_2325);
    let mut prime = |value: usize| {
        primes += 1;
        for byte in (value as u32).to_le_bytes() {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    };
    if n >= 2 {
        prime(2);
    }
    for (i, divided) in divided.iter().enumerate().skip(1) {
        if !divided {
            prime(2 * i + 1);
        }
    }
    format!("{{\"n\":{n},\"primes\":{primes},\"fnv\":\"{sum:016x}\"}}").into_bytes()
}
