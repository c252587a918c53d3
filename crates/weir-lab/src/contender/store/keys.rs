//! The memory use of a million keys.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use weir::Durability;

use super::put::fresh;
use super::{Load, TOPIC, failed, put_all, remove, scratch};
use crate::contender::{Contender, ContenderError};
use crate::protocol::{Answer, Fields, Timed};

/// Puts each message of a load under a separate key of 20 bytes. Reports `rss` (resident bytes
/// after all answers), `rss_peak` and `rss_before`, in bytes.
#[derive(Debug, Default)]
pub struct Keys {
    inputs: BTreeMap<usize, (Load, PathBuf)>,
}

/// The key of message `number`: 20 digits.
fn key(number: u64, into: &mut Vec<u8>) {
    into.extend_from_slice(format!("{number:020}").as_bytes());
}

/// A field of the status of this process, in bytes.
pub fn status(name: &str) -> u64 {
    status_in(
        &fs::read_to_string("/proc/self/status").unwrap_or_default(),
        name,
    )
}

/// A field of the status of a process, in bytes.
pub fn status_in(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes =
        line.and_then(|rest| rest.trim_matches([':', ' ', '\t', 'k', 'B']).parse().ok());
    kibibytes.unwrap_or(0u64) * 1_024
}

impl Contender for Keys {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let path = scratch(fields, "keys", input)?;
        self.inputs.insert(input, (Load::read(fields)?, path));
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let (load, path) = self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let weir = fresh(path, Durability::Memory)?;
        let small = load.for_check();
        put_all(&weir, small, key)?;
        let info = weir.topic(TOPIC).map_err(failed)?.info();
        let keys = info.map_or(0, |info| info.keys);
        weir.close().map_err(failed)?;
        remove(path)?;
        if keys != small.messages {
            return Err(failed(format!("{keys} keys after {} puts", small.messages)));
        }
        Ok(Answer {
            content: keys,
            touch: load.messages,
            ..Answer::default()
        })
    }

    #[allow(clippy::cast_precision_loss)] // bytes of memory
    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let (load, path) = self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let mut sum = Timed::default();
        for _ in 0..iterations {
            let before = status("VmRSS");
            let weir = fresh(path, Durability::Memory)?;
            let (wall_ns, cpu_ns) = put_all(&weir, *load, key)?;
            sum.wall_ns += wall_ns;
            sum.cpu_ns += cpu_ns;
            sum.touch = sum.touch.wrapping_add(load.messages);
            for (name, bytes) in [
                ("rss", status("VmRSS")),
                ("rss_peak", status("VmHWM")),
                ("rss_before", before),
            ] {
                *sum.extra.entry(name.to_owned()).or_default() += bytes as f64;
            }
            weir.close().map_err(failed)?;
            remove(path)?;
        }
        Ok(sum)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        for (_, path) in self.inputs.values() {
            let _ = remove(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_keys_have_twenty_bytes() {
        // A single reading, because other tests grow the process between two readings.
        let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
        assert!(status_in(&text, "VmRSS") > 1_000_000);
        assert!(status_in(&text, "VmHWM") >= status_in(&text, "VmRSS"));
        let mut bytes = Vec::new();
        key(999_999, &mut bytes);
        assert_eq!(bytes, b"00000000000000999999");
    }
}
