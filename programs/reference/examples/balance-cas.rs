//! `balance-cas`: accounts in bounded memory. The program stores only the accounts
//! that changed last; for the others, the client sends the balance that it has
//! seen.
//!
//! Arguments: the number of stored accounts, 2 bytes, big-endian, from 2 to 100.
//! Key: source, 32 bytes. Value: destination (32), last offset seen (u64), then the
//! amount and the balances of source and destination as seen (i32 each).
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, be_i32, be_u16, be_u64, emit_put, reject, state};

weir_guest::program!(apply, init = init);

const BANK: [u8; 32] = [0; 32];
const LIST: &[u8] = b"list";
const ENTRY: usize = 32 + 4 + 8;
const ENTRIES_MAX: usize = 100;

fn capacity(input: &Input) -> usize {
    let mut args = [0; 2];
    be_u16(input.args(&mut args), 0).map_or(0, usize::from)
}

fn init(input: &Input) -> Outcome {
    let count = capacity(input);
    if input.args_len() != 2 || !(2..=ENTRIES_MAX).contains(&count) {
        return reject(1, "arguments: 2 to 100 accounts, as 2 bytes");
    }
    Ok(())
}

/// Whether any entry was ever dropped, then the entries, newest first.
struct List {
    bytes: [u8; 1 + (ENTRIES_MAX + 2) * ENTRY],
    len: usize,
}

impl List {
    fn read() -> Self {
        let mut bytes = [0; 1 + (ENTRIES_MAX + 2) * ENTRY];
        let len = state::get(LIST, &mut bytes).map_or(1, |(_, len)| len);
        Self { bytes, len }
    }

    fn count(&self) -> usize {
        (self.len - 1) / ENTRY
    }

    fn entry(&self, n: usize) -> &[u8] {
        &self.bytes[1 + n * ENTRY..1 + (n + 1) * ENTRY]
    }

    fn find(&self, account: &[u8]) -> Option<usize> {
        (0..self.count()).find(|n| &self.entry(*n)[..32] == account)
    }

    fn balance(&self, n: usize) -> i32 {
        be_i32(self.entry(n), 32).unwrap_or(0)
    }

    fn put_in_front(&mut self, account: &[u8], balance: i32, offset: u64) {
        let end = match self.find(account) {
            Some(n) => 1 + n * ENTRY,
            None => {
                self.len += ENTRY;
                self.len - ENTRY
            }
        };
        self.bytes.copy_within(1..end, 1 + ENTRY);
        self.bytes[1..33].copy_from_slice(account);
        self.bytes[33..37].copy_from_slice(&balance.to_be_bytes());
        self.bytes[37..45].copy_from_slice(&offset.to_be_bytes());
    }
}

fn apply(input: &Input) -> Outcome {
    let (mut key, mut value) = ([0; 32], [0; 52]);
    if input.op() != Op::Put || input.key_len() != 32 || input.value_len() != 52 {
        return reject(1, "key of 32 bytes, value of 52");
    }
    let source = input.key(&mut key);
    let value = input.value(&mut value);
    let destination = &value[..32];
    let seen = be_u64(value, 32).unwrap_or(0);
    let number = |at| be_i32(value, at).unwrap_or(0);
    let (amount, claims) = (number(40), [number(44), number(48)]);
    if amount <= 0 {
        return reject(2, "the amount must be positive");
    }
    if source == destination {
        return reject(3, "source and destination are the same");
    }
    let capacity = capacity(input);
    let mut list = List::read();
    let oldest = match list.count() {
        count if count >= capacity => be_u64(list.entry(count - 1), 36).unwrap_or(0),
        _ => 0,
    };
    let mut balances = [0_i32; 2];
    for (n, account) in [source, destination].into_iter().enumerate() {
        balances[n] = if account == BANK {
            0
        } else if let Some(known) = list.find(account) {
            list.balance(known)
        } else if list.bytes[0] == 0 {
            if claims[n] != 0 {
                return reject(4, "an unknown account has nothing");
            }
            0
        } else if seen >= oldest {
            claims[n]
        } else {
            return reject(5, "too far behind: catch up and try again");
        };
    }
    let [has, gets] = balances;
    if source != BANK && has < amount {
        return reject(6, "not enough");
    }
    let Some(gets) = gets.checked_add(amount) else {
        return reject(7, "the destination overflows");
    };
    let offset = input.intention_offset();
    if source != BANK {
        emit_put(source, &(has - amount).to_be_bytes());
        list.put_in_front(source, has - amount, offset);
    }
    if destination != BANK {
        emit_put(destination, &gets.to_be_bytes());
        list.put_in_front(destination, gets, offset);
    }
    emit_put(&BANK, &amount.to_be_bytes());
    if list.count() > capacity {
        list.bytes[0] = 1;
        list.len = 1 + capacity * ENTRY;
    }
    state::put(LIST, &list.bytes[..list.len]);
    Ok(())
}
