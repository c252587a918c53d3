//! The rights that each operation needs, equal for all ports.
//!
//! Invariant: every operation needs a right.

use weir_core::{GroupStep, Intention, Operation, TxnOp};

use super::Right;

/// Returns each right that the proposer of this intention must have, with its topic.
pub(super) fn needs<'a>(intention: &Intention<'a>) -> impl Iterator<Item = (Right, &'a str)> {
    let topic = intention.topic;
    let own = rights(&intention.operation).iter();
    // The right `admin` is for the server, not for one topic.
    let topic_of = move |right| if right == Right::Admin { "" } else { topic };
    own.map(move |right| (*right, topic_of(*right)))
        .chain(dead_letter_rights(&intention.operation))
}

fn rights(operation: &Operation<'_>) -> &'static [Right] {
    match operation {
        // Retention removes records, so setting it needs more than the right to write.
        Operation::Create { .. } | Operation::Alter { .. } => &[Right::Create],
        Operation::CreateProgram { .. } => &[Right::Create, Right::Program],
        Operation::Replace { .. } => &[Right::Program],
        Operation::Destroy => &[Right::Destroy],
        Operation::Put { .. } => &[Right::Put],
        Operation::Delete { .. } => &[Right::Delete],
        Operation::Cursor { .. } => &[Right::Group],
        Operation::Txn { ops } => txn_rights(ops),
        _ => &[Right::Admin],
    }
}

/// A transaction needs the rights of its operations.
fn txn_rights(ops: &[TxnOp<'_>]) -> &'static [Right] {
    let removes = |op: &TxnOp<'_>| matches!(op, TxnOp::Delete { .. });
    if !ops.iter().any(removes) {
        &[Right::Put]
    } else if ops.iter().all(removes) {
        &[Right::Delete]
    } else {
        &[Right::Put, Right::Delete]
    }
}

/// The rights for the dead-letter topic of a new group: the store creates the topic and writes to
/// it.
fn dead_letter_rights<'a>(
    operation: &Operation<'a>,
) -> impl Iterator<Item = (Right, &'a str)> + use<'a> {
    let dead_letters = match operation {
        Operation::Cursor {
            step: GroupStep::Open(setup),
            ..
        } => setup.dead_letters,
        _ => "",
    };
    let rights = [Right::Create, Right::Put].into_iter();
    rights
        .filter(|_| !dead_letters.is_empty())
        .map(move |right| (right, dead_letters))
}

#[cfg(test)]
mod tests {
    use weir_core::{Intention, Operation, TxnOp};

    use super::{Right, needs};

    #[test]
    fn a_transaction_needs_the_rights_of_its_operations() {
        let put = TxnOp::Put {
            key: b"k",
            value: b"v",
            meta: b"",
        };
        let delete = TxnOp::Delete {
            key: b"k",
            meta: b"",
        };
        for (ops, rights) in [
            (&[put, put][..], &[Right::Put][..]),
            (&[delete], &[Right::Delete]),
            (&[put, delete], &[Right::Put, Right::Delete]),
        ] {
            let txn = Intention::new("t", Operation::Txn { ops });
            let found: Vec<_> = needs(&txn).collect();
            let wanted: Vec<_> = rights.iter().map(|right| (*right, "t")).collect();
            assert_eq!(found, wanted);
        }
    }
}
