//! `balance`, with random transfers, single and in transactions. After each intention, the sum of
//! the balances equals the amount that the bank gave minus the amount that it took back, and no
//! balance is negative.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use weir_core::intention::{Intention, Operation, TxnOp};
use weir_core::{
    Batch, ConsequenceSink, Machine, Outcomes, ProgramHost, Record, RecordKind, TopicId, TopicName,
    TopicOptions,
};
use weir_program::WasmtimeHost;

use crate::world::encoded;

const BANK: [u8; 32] = [0; 32];
const ACCOUNTS: u64 = 6;

/// The sums that a reader of the topic computes.
#[derive(Default)]
struct Books {
    balances: BTreeMap<Vec<u8>, i128>,
    /// The amount that the bank should have given in total.
    given: i128,
    complete: u64,
}

impl ConsequenceSink for Books {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, _: TopicId, record: &Record<'_>) {
        if record.kind != RecordKind::Put {
            return;
        }
        let amount = i64::from_be_bytes(record.value.try_into().unwrap());
        if record.key != BANK {
            assert!(amount >= 0, "nobody owes anything");
            self.balances.insert(record.key.to_vec(), amount.into());
        }
        if record.flags.last() {
            self.complete += 1;
        }
    }
}

fn account(number: u64) -> [u8; 32] {
    let mut account = BANK;
    account[0] = number as u8;
    account
}

/// A transfer, mostly between accounts. Sometimes it is with the bank, too large, not positive, or
/// to the same account.
fn transfer(dice: &mut impl FnMut(u64) -> u64) -> ([u8; 32], [u8; 32], i64) {
    let (from, to) = (dice(ACCOUNTS), dice(ACCOUNTS));
    let amount = match dice(12) {
        0 => i64::MAX,
        1 => -(dice(5) as i64),
        2 => (dice(1 << 62)) as i64,
        _ => dice(200) as i64,
    };
    (account(from), account(to), amount)
}

fn value(to: &[u8], amount: i64) -> Vec<u8> {
    [to, &amount.to_be_bytes(), &[0; 16]].concat()
}

#[test]
fn only_the_bank_changes_the_sum_of_the_balances() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/prebuilt/balance.wasm");
    let code = std::fs::read(path).unwrap();
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let mut machine = Machine::new(1).with_host(Some(host));
    let mut books = Books::default();
    let mut state = 7_u64;
    let mut dice = |end: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 1) % end
    };
    let mut send = |operation: Operation<'_>, books: &mut Books| {
        let bytes = encoded(&Intention::new("bank", operation), 1);
        let batch = Batch::read(&bytes, 1).unwrap();
        let mut outcomes = Outcomes::default();
        machine.apply(&batch, books, &mut outcomes).unwrap();
        let outcome = outcomes.iter().next().unwrap();
        outcome.commit().unwrap().reason.is_none()
    };
    let options = TopicOptions::default();
    let create = Operation::CreateProgram {
        options: &options,
        code: &code,
        args: b"",
    };
    assert!(send(create, &mut books));
    let (mut valid, mut rejected) = (0, 0);
    for round in 0..4_000 {
        let several = if round % 5 == 0 { 1 + dice(4) } else { 1 };
        let wanted: Vec<_> = (0..several).map(|_| transfer(&mut dice)).collect();
        let values: Vec<_> = wanted.iter().map(|(_, to, n)| value(to, *n)).collect();
        let mut puts = wanted
            .iter()
            .zip(&values)
            .map(|((from, ..), value)| TxnOp::Put {
                key: from,
                value,
                meta: b"",
            });
        let done = if several == 1 {
            let Some(TxnOp::Put { key, value, .. }) = puts.next() else {
                unreachable!("one was made");
            };
            send(Operation::Put { key, value }, &mut books)
        } else {
            let ops: Vec<_> = puts.collect();
            send(Operation::Txn { ops: &ops }, &mut books)
        };
        if done {
            valid += 1;
            for (from, to, amount) in &wanted {
                books.given += i128::from(*amount) * i128::from(*from == BANK);
                books.given -= i128::from(*amount) * i128::from(*to == BANK);
            }
        } else {
            rejected += 1;
        }
        assert_eq!(books.complete, valid, "each is complete");
        assert_eq!(books.balances.values().sum::<i128>(), books.given);
    }
    assert!(
        valid > 500 && rejected > 500,
        "{valid} valid, {rejected} not"
    );
}
