//! Token buckets: rate limits of a principal or an address.
//!
//! A bucket stores a debt in nanoseconds. Each unit adds a second divided by the rate; elapsed time
//! reduces the debt. A client with a debt above one second is refused until the debt is one second
//! or less. Fuel of a program is not known in advance, so it is added after the verdict and delays
//! the next request.
//!
//! Invariants:
//! - A bucket is one number, and is changed without a lock.
//! - The number of buckets is bounded.
//! - A request of any size is admitted if there is no debt.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of names and addresses with separate buckets. Above it, accounts without debt and
/// without connections are removed; if there are none, new clients share one account.
const ACCOUNTS_MAX: usize = 65_536;
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// Units per second; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Requests; each item of a batch counts as one.
    pub(crate) requests: Option<u64>,
    /// Bytes of requests.
    pub(crate) bytes: Option<u64>,
    /// Fuel of programs.
    pub(crate) fuel: Option<u64>,
}

impl Limits {
    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// A debt, stored as the time at which it is paid, in nanoseconds since the start.
#[derive(Debug, Default)]
pub(super) struct Bucket(AtomicU64);

impl Bucket {
    /// Returns the time until the debt is at most `burst_ns`; `None` if it already is.
    pub(super) fn wait_ns(&self, now_ns: u64, burst_ns: u64) -> Option<u64> {
        let paid_at = self.0.load(Ordering::Relaxed);
        let wait_ns = paid_at.saturating_sub(now_ns.saturating_add(burst_ns));
        (wait_ns > 0).then_some(wait_ns)
    }

    pub(super) fn add(&self, now_ns: u64, units: u64, per_second: u64) {
        let cost = u128::from(units) * u128::from(SECOND_NS) / u128::from(per_second.max(1));
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let update = |paid_at: u64| Some(paid_at.max(now_ns).saturating_add(cost));
        let order = Ordering::Relaxed;
        // The closure always returns `Some`.
        let _ = self.0.fetch_update(order, order, update);
    }

    fn is_paid(&self, now_ns: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= now_ns
    }
}

/// The debts of one principal or address.
#[derive(Debug, Default)]
pub(crate) struct Account {
    requests: Bucket,
    bytes: Bucket,
    fuel: Bucket,
    failures: Bucket,
}

impl Account {
    fn is_paid(&self, now_ns: u64) -> bool {
        [&self.requests, &self.bytes, &self.fuel, &self.failures]
            .iter()
            .all(|bucket| bucket.is_paid(now_ns))
    }
}

/// The owner of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum AccountKey {
    Address(IpAddr),
    Principal(Box<str>),
}

/// All accounts of a server.
#[derive(Debug)]
pub(crate) struct Rates {
    start: Instant,
    principal: Limits,
    address: Limits,
    accounts: Mutex<HashMap<AccountKey, Arc<Account>>>,
    shared: Arc<Account>,
    /// Time of the next scan for accounts to remove, in nanoseconds since the start.
    next_scan_ns: AtomicU64,
}

/// The accounts of one connection; cheap to clone. All connections of one owner share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateAccounts {
    principal: Option<Arc<Account>>,
    address: Option<Arc<Account>>,
}

/// Maximum number of failed authentications of an address per minute.
const FAILURES_A_MINUTE: u64 = 10;

impl Rates {
    pub(crate) fn new(principal: Limits, address: Limits) -> Self {
        Self {
            start: Instant::now(),
            principal,
            address,
            accounts: Mutex::default(),
            shared: Arc::default(),
            next_scan_ns: AtomicU64::default(),
        }
    }

    /// Returns the accounts of a client. `name` is empty without identity.
    pub(crate) fn accounts_of(&self, name: &str, address: Option<IpAddr>) -> RateAccounts {
        let principal = (!name.is_empty() && !self.principal.is_empty())
            .then(|| self.account(AccountKey::Principal(name.into())));
        let address = address.filter(|_| !self.address.is_empty());
        RateAccounts {
            principal,
            address: address.map(|address| self.account(AccountKey::Address(network(address)))),
        }
    }

    /// Charges a request of this many items and bytes. Returns the time to wait if a limit is
    /// exceeded.
    pub(crate) fn admit(&self, to: &RateAccounts, items: u64, bytes: u64) -> Result<(), Duration> {
        if to.principal.is_none() && to.address.is_none() {
            return Ok(());
        }
        let now = self.now_ns();
        let mut longest = 0;
        for (account, limits) in self.accounts_and_limits(to) {
            for (bucket, limit) in [
                (&account.requests, limits.requests),
                (&account.bytes, limits.bytes),
                (&account.fuel, limits.fuel),
            ] {
                let wait_ns = limit.and_then(|_| bucket.wait_ns(now, SECOND_NS));
                longest = wait_ns.unwrap_or(0).max(longest);
            }
        }
        if longest > 0 {
            return Err(Duration::from_nanos(longest));
        }
        for (account, limits) in self.accounts_and_limits(to) {
            if let Some(limit) = limits.requests {
                account.requests.add(now, items, limit);
            }
            if let Some(limit) = limits.bytes {
                account.bytes.add(now, bytes, limit);
            }
        }
        Ok(())
    }

    /// Charges bytes of a request that `admit` has counted.
    pub(crate) fn charge_bytes(&self, to: &RateAccounts, bytes: u64) {
        if bytes == 0 || (to.principal.is_none() && to.address.is_none()) {
            return;
        }
        let now = self.now_ns();
        for (account, limits) in self.accounts_and_limits(to) {
            if let Some(limit) = limits.bytes {
                account.bytes.add(now, bytes, limit);
            }
        }
    }

    /// Charges the fuel that executed writes used.
    pub(crate) fn charge_fuel(&self, to: &RateAccounts, fuel: u64) {
        if fuel == 0 {
            return;
        }
        let now = self.now_ns();
        for (account, limits) in self.accounts_and_limits(to) {
            if let Some(limit) = limits.fuel {
                account.fuel.add(now, fuel, limit);
            }
        }
    }

    /// Counts a failed authentication. Returns the time to wait if there were too many.
    pub(crate) fn failed(&self, address: IpAddr) -> Result<(), Duration> {
        let account = self.account(AccountKey::Address(network(address)));
        let now = self.now_ns();
        let minute_ns = 60 * SECOND_NS;
        let step_ns = minute_ns / FAILURES_A_MINUTE;
        if let Some(wait_ns) = account.failures.wait_ns(now, minute_ns - step_ns) {
            return Err(Duration::from_nanos(wait_ns));
        }
        // `step_ns` units at `SECOND_NS` units per second add a debt of `step_ns`.
        account.failures.add(now, step_ns, SECOND_NS);
        Ok(())
    }

    fn accounts_and_limits<'a>(
        &self,
        to: &'a RateAccounts,
    ) -> impl Iterator<Item = (&'a Account, Limits)> + use<'a> {
        let principal = to.principal.as_deref().zip(Some(self.principal));
        let address = to.address.as_deref().zip(Some(self.address));
        principal.into_iter().chain(address)
    }

    fn account(&self, key: AccountKey) -> Arc<Account> {
        let mut accounts = self.accounts.lock();
        if let Some(account) = accounts.get(&key) {
            return Arc::clone(account);
        }
        if accounts.len() >= ACCOUNTS_MAX {
            let now = self.now_ns();
            // A scan of so many accounts under the lock delays all clients, so it runs at most once a
            // second.
            if now >= self.next_scan_ns.load(Ordering::Relaxed) {
                let next = now.saturating_add(SECOND_NS);
                self.next_scan_ns.store(next, Ordering::Relaxed);
                let is_needed = |account: &Arc<Account>| {
                    Arc::strong_count(account) > 1 || !account.is_paid(now)
                };
                accounts.retain(|_, account| is_needed(account));
            }
            if accounts.len() >= ACCOUNTS_MAX {
                return Arc::clone(&self.shared);
            }
        }
        Arc::clone(accounts.entry(key).or_default())
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns the /64 network of an IPv6 address, because a client with one such address controls its
/// whole /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{ACCOUNTS_MAX, Bucket, Limits, Rates, SECOND_NS};
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_bucket_admits_a_burst_of_one_second_and_then_its_rate() {
        let bucket = Bucket::default();
        let mut admitted = 0;
        // The limit is 100 per second; the client tries 1,000 per second.
        for ms in 0..10_000 {
            let now = ms * 1_000_000;
            if bucket.wait_ns(now, SECOND_NS).is_none() {
                bucket.add(now, 1, 100);
                admitted += 1;
            }
        }
        assert_eq!(admitted, 1_100, "ten seconds, and a burst of one second");
        let wait = bucket.wait_ns(10_000_000_000, SECOND_NS);
        assert!(wait.is_none_or(|wait| wait <= SECOND_NS / 100));
    }

    #[test]
    fn a_request_above_the_rate_is_admitted_and_charged() {
        let limits = Limits {
            bytes: Some(1_000),
            ..Limits::default()
        };
        let rates = Rates::new(limits, Limits::default());
        let accounts = rates.accounts_of("a", Some(LOCALHOST));
        rates.admit(&accounts, 1, 1_000_000).unwrap();
        let wait = rates.admit(&accounts, 1, 1).unwrap_err();
        assert!(wait > Duration::from_secs(990), "{wait:?}");
        // Another principal at this address is not affected.
        let other = rates.accounts_of("b", Some(LOCALHOST));
        rates.admit(&other, 1, 1).unwrap();
        // The limited principal is also limited on another connection.
        let again = rates.accounts_of("a", None);
        assert!(rates.admit(&again, 1, 1).is_err());
    }

    #[test]
    fn fuel_is_charged_after_the_verdict() {
        let limits = Limits {
            fuel: Some(1_000),
            ..Limits::default()
        };
        let rates = Rates::new(Limits::default(), limits);
        let accounts = rates.accounts_of("", Some(LOCALHOST));
        rates.admit(&accounts, 1_000_000, 1_000_000).unwrap();
        rates.charge_fuel(&accounts, 500);
        rates.admit(&accounts, 1, 1).unwrap();
        rates.charge_fuel(&accounts, 60_000);
        let wait = rates.admit(&accounts, 1, 1).unwrap_err();
        assert!(wait > Duration::from_secs(50), "{wait:?}");
    }

    #[test]
    fn without_limits_there_are_no_accounts() {
        let rates = Rates::new(Limits::default(), Limits::default());
        let accounts = rates.accounts_of("a", Some(LOCALHOST));
        for _ in 0..1_000 {
            rates.admit(&accounts, 10_000, 1 << 30).unwrap();
        }
        assert!(rates.accounts.lock().is_empty());
    }

    #[test]
    fn failures_slow_down_an_address() {
        let rates = Rates::new(Limits::default(), Limits::default());
        for _ in 0..10 {
            rates.failed(LOCALHOST).unwrap();
        }
        let wait = rates.failed(LOCALHOST).unwrap_err();
        assert!(wait <= Duration::from_secs(6), "{wait:?}");
        rates.failed("192.0.2.1".parse().unwrap()).unwrap();
        // A whole IPv6 network is one client.
        for host in 0..10 {
            let address = format!("2001:db8::{host}").parse().unwrap();
            rates.failed(address).unwrap();
        }
        assert!(rates.failed("2001:db8::ffff".parse().unwrap()).is_err());
    }

    #[test]
    fn accounts_are_bounded_and_removed_when_paid() {
        let limits = Limits {
            requests: Some(1),
            ..Limits::default()
        };
        let rates = Rates::new(limits, Limits::default());
        let slow = rates.accounts_of("slow", None);
        rates.admit(&slow, 1_000, 0).unwrap();
        drop(slow);
        for n in 0..ACCOUNTS_MAX + 10 {
            drop(rates.accounts_of(&format!("p{n}"), None));
        }
        assert!(rates.accounts.lock().len() <= ACCOUNTS_MAX);
        // An account with a debt is not removed.
        let slow = rates.accounts_of("slow", None);
        assert!(rates.admit(&slow, 1, 0).is_err());
        let in_use: Vec<_> = (0..ACCOUNTS_MAX + 10)
            .map(|n| rates.accounts_of(&format!("q{n}"), None))
            .collect();
        assert!(rates.accounts.lock().len() <= ACCOUNTS_MAX);
        drop(in_use);
        // All but one could be removed, but the next scan is not due yet.
        rates.next_scan_ns.store(u64::MAX, Ordering::Relaxed);
        drop(rates.accounts_of("new", None));
        assert_eq!(rates.accounts.lock().len(), ACCOUNTS_MAX);
        rates.next_scan_ns.store(0, Ordering::Relaxed);
        drop(rates.accounts_of("new", None));
        assert_eq!(rates.accounts.lock().len(), 2);
    }
}
