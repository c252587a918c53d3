//! What holds in every history, one file for each invariant.

pub(crate) mod acknowledged;
pub(crate) mod agreement;
pub(crate) mod committed;
pub(crate) mod ended;
pub(crate) mod leader;
pub(crate) mod linear;
pub(crate) mod order;
pub(crate) mod state;
pub(crate) mod term;

use weir_raft::{Role, Status};

use crate::cluster::Running;
use crate::report::Violation;

/// Those that hold at every moment.
#[derive(Default)]
pub(crate) struct Watch {
    leader: leader::OneLeaderPerTerm,
    committed: committed::CommittedStays,
    state: state::SameState,
    term: term::TermGrows,
}

impl Watch {
    pub(crate) fn check(&mut self, running: &Running, is_off: bool) -> Result<(), Violation> {
        let status: Status = running.node.status();
        ended::check(&status, is_off)?;
        if status.role == Role::Ended {
            // Its status may show a vote that the cut kept from the disk.
            return Ok(());
        }
        order::check(&status)?;
        self.leader.check(&status)?;
        self.committed.check(&status)?;
        self.term.check(&status)?;
        self.state
            .check(&status, running.life, running.node.store())
    }
}
