//! Puts per second at a durability level, for a first look; the lab measures
//! properly. Usage: `throughput LEVEL PRODUCERS BATCH MESSAGES`.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::time::{Duration, Instant};
use weir::{ClientId, Durability, Intention, OpenOptions, Operation, Weir};

fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let level = match args[0].as_str() {
        "memory" => Durability::Memory,
        "group" => Durability::Group,
        _ => Durability::Interval(Duration::from_millis(1000)),
    };
    let producers: u64 = args[1].parse().unwrap();
    let batch: usize = args[2].parse().unwrap();
    let messages: u64 = args[3].parse().unwrap();
    let keys: u64 = args.get(4).map_or(1_000_000, |n| n.parse().unwrap());
    let dir = std::path::PathBuf::from(args.get(5).map_or("target/throughput", |d| d));
    let _ = std::fs::remove_dir_all(&dir);
    let options = OpenOptions {
        durability: level,
        ..OpenOptions::default()
    };
    let weir = Weir::open_with(&dir, &options).unwrap();
    weir.topic("t").unwrap().ensure().unwrap();
    let (start, cpu_start) = (Instant::now(), cpu());
    std::thread::scope(|scope| {
        for p in 0..producers {
            let weir = &weir;
            scope.spawn(move || {
                let mut session = weir.session(ClientId([p as u8 + 1; 16]));
                let value = [b'x'; 100];
                let mut pending = Vec::new();
                let mut n = 0;
                let share = messages / producers;
                while n < share {
                    let count = batch.min((share - n) as usize);
                    let names: Vec<[u8; 20]> = (0..count as u64)
                        .map(|i| {
                            let mut k = [b'k'; 20];
                            let id = ((n + i) * producers + p).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                                % keys;
                            k[..8].copy_from_slice(&id.to_be_bytes());
                            k
                        })
                        .collect();
                    let puts: Vec<Intention<'_>> = names
                        .iter()
                        .map(|key| {
                            Intention::new(
                                "t",
                                Operation::Put {
                                    key: if keys == 1 { b"" } else { key },
                                    value: &value,
                                },
                            )
                        })
                        .collect();
                    pending.push(session.send(&puts).unwrap());
                    n += count as u64;
                }
                for p in pending {
                    assert!(p.into_proposal().wait().unwrap().len() > 0);
                }
            });
        }
    });
    let (wall, used) = (start.elapsed(), cpu() - cpu_start);
    let stats = weir.store().stats();
    println!(
        "{messages} messages: {:.3} us wall, {:.3} us cpu each; {} batches, {} syncs",
        wall.as_secs_f64() * 1e6 / messages as f64,
        used.as_secs_f64() * 1e6 / messages as f64,
        stats.batches,
        stats.syncs
    );
    let start = Instant::now();
    let mut count = 0_u64;
    for page in weir
        .topic("t")
        .unwrap()
        .pages(weir::ReadFrom::Start)
        .unwrap()
    {
        for record in &page.unwrap() {
            let r = record.unwrap();
            count += u64::from(r.value.len() == 100);
        }
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("read {count} records at {:.1} M/s", rate / 1e6);
    let rss = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", rss.lines().find(|l| l.starts_with("VmRSS")).unwrap());
    let start = Instant::now();
    weir.close().unwrap();
    println!("close {:?}", start.elapsed());
    let start = Instant::now();
    let weir = Weir::open_with(&dir, &options).unwrap();
    println!(
        "open {:?} {:?}",
        start.elapsed(),
        weir.store().report().replayed_intentions
    );
}
