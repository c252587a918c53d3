//! Programs through the public API: they validate writes, survive a snapshot and a reopen, and can
//! be verified.
#![cfg(feature = "programs")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use weir::{Detail, ErrorCode, TopicOptions, Weir};

fn program(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/prebuilt");
    std::fs::read(folder.join(format!("{name}.wasm"))).unwrap()
}

#[test]
fn a_program_validates_writes_after_each_way_to_open_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let options = TopicOptions::default();
    let mut sum = 0_i64;
    for round in 0..4 {
        let weir = Weir::open(dir.path()).unwrap();
        let counter = weir.topic("counter").unwrap();
        if round == 0 {
            let made = counter.create_program(&options, &program("counter"), &[]);
            assert!(made.unwrap().is_valid());
        }
        for add in [5_i64, -2] {
            let verdict = counter.put("n", add.to_be_bytes()).unwrap();
            assert!(verdict.is_valid() && verdict.fuel() > 0, "{verdict:?}");
            sum += add;
        }
        let value = counter.get("n").unwrap().unwrap();
        assert_eq!(value.value(), sum.to_be_bytes());
        let rejected = counter.put("n", "not a number").unwrap();
        assert_eq!(rejected.reason(), Some(ErrorCode::Rejected));
        assert!(matches!(
            rejected.detail(),
            Detail::Rejected { code: 1, .. }
        ));
        if round == 1 {
            weir.store().unwrap().compact_log().unwrap();
        }
        let digest = weir.store().unwrap().digest();
        weir.close().unwrap();
        let report = weir::verify(dir.path()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.digest, Some(digest), "replay gives the same digest");
    }
    let weir = Weir::open(dir.path()).unwrap();
    let program = weir.store().unwrap().program("counter").unwrap();
    assert_eq!(program.state_entries, 1);
}

#[test]
fn eight_writers_cannot_overdraw_a_bank() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let bank = weir.topic("bank").unwrap();
    let made = bank.create_program(&TopicOptions::default(), &program("balance"), &[]);
    assert!(made.unwrap().is_valid());
    let account = |n: u8| [&[n][..], &[0; 31]].concat();
    let transfer =
        |to: u8, amount: i64| [&account(to)[..], &amount.to_be_bytes(), &[0; 16]].concat();
    for n in 1..=8 {
        let minted = bank.put(account(0), transfer(n, 1000)).unwrap();
        assert!(minted.is_valid());
    }
    let refused: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=8_u8)
            .map(|own| {
                let (bank, account) = (&bank, &account);
                scope.spawn(move || {
                    let mut refused = 0;
                    for n in 0..40_u8 {
                        let to = (own + n % 7) % 8 + 1;
                        let amount = i64::from(n) * 40;
                        let value = transfer(to, amount);
                        let verdict = bank.put(account(own), value).unwrap();
                        refused += usize::from(!verdict.is_valid());
                    }
                    refused
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum()
    });
    assert!(refused > 0, "some transfers must be rejected");
    let balance = |n: u8| {
        let value = bank.get(account(n)).unwrap().unwrap();
        i64::from_be_bytes(value.value().try_into().unwrap())
    };
    let balances: Vec<i64> = (1..=8).map(balance).collect();
    assert_eq!(balances.iter().sum::<i64>(), 8000, "{balances:?}");
    assert!(balances.iter().all(|balance| *balance >= 0), "{balances:?}");
}
