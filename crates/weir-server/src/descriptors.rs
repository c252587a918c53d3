//! Descriptors: how many the process may have, and how many of them connections may take.
//!
//! The store opens files while it serves: segments of the log, topics, snapshots. Connections
//! must never take what it needs, so a reserve is kept from them, and they get at most 80 % of
//! the rest (reliability OV7).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::ServerError;

/// Descriptors for the store, listeners and the process itself.
const RESERVE: usize = 256;
/// Fewer than this, and there is no start.
pub(crate) const DESCRIPTORS_MIN: usize = 96;
/// Share of the rest that connections of other machines may take, in percent. What is left is
/// for the socket of this machine.
const CONNECTIONS_PERCENT: usize = 80;
/// More than this are not counted: a limit may be any number.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    /// Connections of the TCP ports, together.
    pub(crate) connections_max: usize,
    /// Connections of all ports, together with those of the socket of this machine.
    pub(crate) local_connections_max: usize,
}

/// Raises the soft limit of open files of this process to its hard limit.
///
/// # Errors
/// [`ServerError::Descriptors`] when there are too few to serve. Nothing was opened.
pub fn raise_descriptor_limit() -> Result<(), ServerError> {
    raise().map(drop)
}

pub(crate) fn raise() -> Result<Descriptors, ServerError> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Without the right to do so, the soft limit is what there is.
    let now = setrlimit(Resource::Nofile, raised).map_or(limit.current, |()| raised.current);
    let now = now.and_then(|now| usize::try_from(now).ok());
    Descriptors::of(now.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX))
}

impl Descriptors {
    /// With at most so many connections, which is what the memory allows.
    pub(crate) fn at_most(self, connections: usize) -> Self {
        Self {
            connections_max: self.connections_max.min(connections),
            ..self
        }
    }

    fn of(limit: usize) -> Result<Self, ServerError> {
        if limit < DESCRIPTORS_MIN {
            let need = DESCRIPTORS_MIN;
            return Err(ServerError::Descriptors { limit, need });
        }
        let rest = limit - RESERVE.min(limit / 3 * 2);
        Ok(Self {
            connections_max: rest * CONNECTIONS_PERCENT / 100,
            local_connections_max: rest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{DESCRIPTORS_MIN, Descriptors};
    use crate::error::ServerError;

    #[test]
    fn a_reserve_is_kept_from_connections() {
        for (limit, connections, local) in [(1024, 614, 768), (512, 204, 256), (96, 25, 32)] {
            let split = Descriptors::of(limit).ok();
            let split = split.map(|split| (split.connections_max, split.local_connections_max));
            assert_eq!(split, Some((connections, local)), "{limit}");
        }
        let few = Descriptors::of(DESCRIPTORS_MIN - 1);
        assert!(matches!(
            few,
            Err(ServerError::Descriptors {
                limit: 95,
                need: 96
            })
        ));
    }
}
