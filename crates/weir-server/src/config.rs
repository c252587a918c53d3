//! The settings of a server: one table of keys, each with its name, unit, default and meaning, for
//! flags, environment, file and documentation.
//!
//! The caller that fills the structure decides which source wins (the command: flag,
//! environment, file, default).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use weir_store::units::{self, UnitError};
use weir_store::{OpenOptions, Scrub};

/// An address to listen on: `HOST:PORT`, `PORT` or `:PORT` on loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl FromStr for Address {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let wrong = || KeyError::new("an address like 127.0.0.1:7070, [::1]:7070 or 7070");
        let text = text.trim();
        let port = text.strip_prefix(':').unwrap_or(text);
        if let Ok(port) = port.parse::<u16>() {
            return Ok(Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        // For a host name, the first address that it resolves to.
        let mut found = text.to_socket_addrs().map_err(|_| wrong())?;
        found.next().map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value that a key does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key accepts values of another kind.
    #[error("it takes {wanted}")]
    Wanted {
        /// The values that the key accepts.
        wanted: &'static str,
    },
    /// The key accepts a duration or a size.
    #[error(transparent)]
    Unit(#[from] UnitError),
}

impl KeyError {
    const fn new(wanted: &'static str) -> Self {
        Self::Wanted { wanted }
    }
}

/// One setting. `set` parses a text such as `127.0.0.1:7070`, `30s`, `64MiB` or `true`; `get`
/// formats a value as text that `set` accepts.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name in lower case, words joined by `_`. The key `a_b` is the flag `--a-b`, the variable
    /// `WEIR_SERVE_A_B`, and `a_b` under `[serve]` in the file.
    pub name: &'static str,
    /// Meaning of the setting, in one line.
    pub about: &'static str,
    /// Parses a text and stores the value in the configuration.
    pub set: fn(&mut ServerConfig, &str) -> Result<(), KeyError>,
    /// The current value as text.
    pub get: fn(&ServerConfig) -> String,
}

/// A value that can be parsed from a text.
trait Setting: Sized {
    fn read(text: &str) -> Result<Self, KeyError>;
    fn show(&self) -> String;
}

impl Setting for bool {
    fn read(text: &str) -> Result<Self, KeyError> {
        match text {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(KeyError::new("true or false")),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for usize {
    fn read(text: &str) -> Result<Self, KeyError> {
        text.parse().map_err(|_| KeyError::new("a whole number"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for Option<Address> {
    fn read(text: &str) -> Result<Self, KeyError> {
        match text {
            "off" | "none" => Ok(None),
            _ => text.parse().map(Some),
        }
    }

    fn show(&self) -> String {
        self.as_ref()
            .map_or_else(|| "off".to_owned(), ToString::to_string)
    }
}

impl Setting for Duration {
    fn read(text: &str) -> Result<Self, KeyError> {
        Ok(units::duration(text)?)
    }

    fn show(&self) -> String {
        match self.as_millis() {
            ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
            ms => format!("{ms}ms"),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub usize);

impl Setting for Size {
    fn read(text: &str) -> Result<Self, KeyError> {
        let bytes = usize::try_from(units::size(text)?);
        bytes
            .map(Self)
            .map_err(|_| KeyError::new("a size that fits into memory"))
    }

    fn show(&self) -> String {
        match self.0 {
            n if n != 0 && n % (1 << 20) == 0 => format!("{}MiB", n >> 20),
            n if n != 0 && n % (1 << 10) == 0 => format!("{}KiB", n >> 10),
            n => n.to_string(),
        }
    }
}

impl Setting for Option<Size> {
    fn read(text: &str) -> Result<Self, KeyError> {
        if text == "auto" {
            return Ok(None);
        }
        match Size::read(text)? {
            Size(0) => Err(KeyError::new("a size above 0, or auto")),
            size => Ok(Some(size)),
        }
    }

    fn show(&self) -> String {
        self.map_or_else(|| "auto".to_owned(), |size| size.show())
    }
}

impl Setting for Option<PathBuf> {
    fn read(text: &str) -> Result<Self, KeyError> {
        Ok(match text {
            "" | "off" | "none" => None,
            path => Some(path.into()),
        })
    }

    fn show(&self) -> String {
        let path = self.as_ref().map(|path| path.display().to_string());
        path.unwrap_or_else(|| "off".to_owned())
    }
}

impl Setting for Option<bool> {
    fn read(text: &str) -> Result<Self, KeyError> {
        match text {
            "auto" => Ok(None),
            _ => bool::read(text)
                .map(Some)
                .map_err(|_| KeyError::new("true, false or auto")),
        }
    }

    fn show(&self) -> String {
        self.map_or_else(|| "auto".to_owned(), |on| on.to_string())
    }
}

/// Whether clients must present a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// The server requests none.
    #[default]
    Off,
    /// The server requests one, and verifies a certificate that is presented.
    Optional,
    /// The server refuses connections without one.
    Required,
}

impl Setting for ClientCertificates {
    fn read(text: &str) -> Result<Self, KeyError> {
        match text {
            "off" => Ok(Self::Off),
            "optional" => Ok(Self::Optional),
            "required" => Ok(Self::Required),
            _ => Err(KeyError::new("off, optional or required")),
        }
    }

    fn show(&self) -> String {
        let name = match self {
            Self::Off => "off",
            Self::Optional => "optional",
            Self::Required => "required",
        };
        name.to_owned()
    }
}

/// Limit of what a caller may use in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// No limit for clients on this machine, and a high limit for others.
    #[default]
    Auto,
    /// No limit.
    Off,
    /// Units a second.
    Units(u64),
}

impl Rate {
    /// Requests per second from another machine, by default.
    pub(crate) const REQUESTS: u64 = 100_000;
    /// Bytes per second from another machine, by default.
    pub(crate) const BYTES: u64 = 256 << 20;
    /// Fuel per second from another machine, by default: about half of what one processor burns.
    pub(crate) const FUEL: u64 = 1_000_000_000;

    /// Returns the limit for a caller on this machine (`local`) or on another machine.
    pub(crate) fn units(self, local: bool, auto: u64) -> Option<u64> {
        match self {
            Self::Auto => (!local).then_some(auto),
            Self::Off => None,
            Self::Units(units) => Some(units),
        }
    }
}

impl Setting for Rate {
    fn read(text: &str) -> Result<Self, KeyError> {
        let wrong = || KeyError::new("a number a second like 1000 or 16MiB, off or auto");
        match text {
            "auto" => Ok(Self::Auto),
            "off" | "none" => Ok(Self::Off),
            _ => {
                let Size(units) = Size::read(text).map_err(|_| wrong())?;
                let units = u64::try_from(units).ok().filter(|units| *units > 0);
                units.map(Self::Units).ok_or_else(wrong)
            }
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Off => "off".to_owned(),
            Self::Units(units) => units.to_string(),
        }
    }
}

impl Setting for String {
    fn read(text: &str) -> Result<Self, KeyError> {
        let is_host = text.len() <= 200 && !text.contains([' ', ',', '/', '@']);
        let host = is_host.then(|| text.to_owned());
        host.ok_or_else(|| KeyError::new("a host name or an IP address without port"))
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Setting for Vec<String> {
    fn read(text: &str) -> Result<Self, KeyError> {
        let names = text.split(',').map(str::trim);
        Ok(names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect())
    }

    fn show(&self) -> String {
        self.join(",")
    }
}

/// Generates the structure, its default and its table from one list.
macro_rules! config {
    ($($name:ident: $type:ty = $default:expr, $about:literal;)*) => {
        /// The settings of a server. [`ServerConfig::KEYS`] has their names, units and defaults.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[allow(clippy::struct_excessive_bools, reason = "each is an independent setting")]
        pub struct ServerConfig {
            $(#[doc = $about] pub $name: $type,)*
        }

        impl Default for ServerConfig {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl ServerConfig {
            /// All keys, in the order in which they are documented.
            pub const KEYS: &'static [Key] = &[$(Key {
                name: stringify!($name),
                about: $about,
                set: |config, text| {
                    config.$name = Setting::read(text)?;
                    Ok(())
                },
                get: |config| Setting::show(&config.$name),
            },)*];
        }
    };
}

const fn loopback(port: u16) -> Address {
    Address(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

config! {
    http: Option<Address> = Some(loopback(7070)), "Address of the HTTP port, or off";
    native: Option<Address> = Some(loopback(7071)), "Address of the native port, or off";
    peer: Option<Address> = None, "Address of the port for the other nodes of a cluster, or off";
    peer_cert: Option<PathBuf> = None, "File with the certificate of this node for the other nodes, and those between it and its authority, PEM (weir cert issue --for node)";
    peer_key: Option<PathBuf> = None, "File with the key of that certificate, PEM";
    peer_ca: Option<PathBuf> = None, "File with the authority of the certificates of all nodes, PEM; it must sign nothing else";
    join: Vec<String> = Vec::new(), "Peer addresses of nodes of a cluster, HOST:PORT, that an empty directory joins";
    node: usize = 0, "Number that an empty directory wants when it joins a cluster; 0: any";
    advertise: String = String::new(), "Host name or address under which clients and the other nodes of a cluster reach this one; none: the addresses of its ports";
    socket: Option<PathBuf> = None, "Socket of the native protocol for processes of the same person, or off; weir serve: weir.sock in the directory";
    threads: usize = 0, "Threads that serve; 0: as many as processors";
    identities: Option<PathBuf> = None, "File of tokens and certificates that are known; none: everything is allowed";
    tls_cert: Option<PathBuf> = None, "File with the certificate of the server and those between it and its authority, PEM";
    tls_key: Option<PathBuf> = None, "File with the key of the certificate, PEM";
    tls_client: ClientCertificates = ClientCertificates::Off, "Whether clients show a certificate: off, optional or required";
    tls_client_ca: Option<PathBuf> = None, "File with the authority of the certificates of clients, PEM";
    tls12: bool = false, "Speak TLS 1.2 beside 1.3";
    audit: Option<bool> = None, "Write what is denied and administered to .weir.audit; auto: with identities";
    rate_requests: Rate = Rate::Auto, "Requests a second of one principal or address; auto: no limit for this machine";
    rate_bytes: Rate = Rate::Auto, "Bytes a second of the requests of one principal or address";
    rate_fuel: Rate = Rate::Auto, "Fuel a second that programs use for one principal or address";
    program_fuel_max: usize = 10_000_000, "Fuel of one call that a topic with a program may ask for; at least 2,000,000, the default of a topic, and at most 1,000,000,000";
    sessions_per_principal_max: usize = 1024, "Sessions of one principal within a day, of the 4,096 that a store keeps";
    insecure_no_auth: bool = false, "Serve other machines without identities";
    insecure_no_tls: bool = false, "Serve other machines without TLS";
    hosts: Vec<String> = Vec::new(), "Names by which clients may call the server, besides those of loopback";
    cors_origins: Vec<String> = Vec::new(), "Origins of web pages that may use the server";
    connections_max: usize = 10_000, "Open connections of each port";
    connections_unauthenticated_max: usize = 1024, "Open connections of all ports on which no request passed its checks yet; one more closes the oldest of them";
    connections_per_address_max: usize = 1024, "Open connections of each port from one address";
    memory_max: Option<Size> = None, "Memory that budgets are made for; auto: the least of what control groups, limits and the machine allow";
    bodies_budget: Option<Size> = None, "Bytes of bodies and packets that are not complete, of all connections together; auto: an eighth of the memory, at most 256 MiB";
    answers_budget: Option<Size> = None, "Bytes of answers that clients did not take yet, of all connections together; auto: an eighth of the memory, at most 256 MiB";
    request_line_max: Size = Size(8 << 10), "Size of a request line";
    head_max: Size = Size(32 << 10), "Size of all header fields";
    head_fields_max: usize = 100, "Number of header fields";
    payload_max: Size = Size(16 << 20), "Size of one payload, below the limit of the store";
    body_max: Size = Size(64 << 20), "Size of a request body";
    json_max: Size = Size(1 << 20), "Size of a JSON body that the server itself reads";
    head_timeout: Duration = Duration::from_secs(10), "Time for the header fields from their first byte";
    idle_timeout: Duration = Duration::from_secs(75), "Time between two requests of a connection";
    body_timeout: Duration = Duration::from_secs(20), "Silence within a request body";
    body_rate_min: Size = Size(1 << 10), "Bytes a second that a body must average";
    body_rate_after: Duration = Duration::from_secs(10), "Time from which that average counts";
    store_timeout: Duration = Duration::from_secs(30), "Time for the store to answer a write";
    write_timeout: Duration = Duration::from_secs(30), "Time in which a client must read some of its answer";
    heartbeat: Duration = Duration::from_secs(15), "Time between two signs of life of a quiet tail";
    tail_max_age: Duration = Duration::from_mins(10), "Time after which a tail is asked to come again";
    lame_duck: Duration = Duration::ZERO, "Time between not ready and not accepting after SIGTERM, for a load balancer that polls /readyz";
    drain: Duration = Duration::from_secs(30), "Time for open requests when the server is told to end";
    backups: Option<PathBuf> = None, "Directory below which weir serve makes a copy of the store on SIGUSR1; none: it makes none";
    snapshot_log: Size = Size(1 << 30), "Bytes of log after a snapshot that make the next one";
    log_keep: Size = Size(256 << 20), "Newest bytes of log that stay when a snapshot lets the older ones go";
    scrub_rate: Size = Size(8 << 20), "Bytes a second that are read again in the background to find damage; 0: none";
    scrub_every: Duration = Duration::from_hours(24), "Time between the beginnings of two rounds that read everything again";
    volatile: bool = false, "Serve a store on a file system in memory or of the network, which may lose what was synced";
    believe_clock: bool = false, "Believe at once that the store was closed as long as the clock of this machine says";
    access_log: bool = false, "Log each request";
}

/// Settings with which a server refuses to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigError {
    /// Other machines can reach an address that lacks a protection.
    Exposed { address: String, missing: Missing },
    /// Two settings contradict each other, or the server cannot apply one of them.
    Contradiction { what: &'static str },
}

/// The protection that an address lacks although other machines can reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// Encryption, and proof of the identity of the server.
    Tls,
    /// Identities of the clients that are allowed in.
    Identities,
    /// Encryption between the nodes of a cluster.
    PeerTls,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => {
                "TLS is off; give --tls-cert and --tls-key (`weir cert ca` and `weir cert issue` \
                 make them), or say --insecure-no-tls to let everybody on the way read and change \
                 everything"
            }
            Self::Identities => {
                "nobody has to say who they are; give --identities (`weir token create` makes the \
                 file), or say --insecure-no-auth to let everybody do everything"
            }
            Self::PeerTls => {
                "the other nodes are reached without TLS; give --peer-cert, --peer-key and --peer-ca \
                 (`weir cert issue --for node` makes the files), or say --insecure-no-tls for a \
                 network that nobody else can reach"
            }
        })
    }
}

impl ServerConfig {
    /// Applies the settings that concern the store to `options`.
    pub fn tune(&self, options: &mut OpenOptions) {
        options.program_fuel_max = self.program_fuel_max as u64;
        options.snapshot_log_bytes = self.snapshot_log.0 as u64;
        options.log_keep_bytes = Some(self.log_keep.0 as u64);
        options.scrub = (self.scrub_rate.0 > 0).then_some(Scrub {
            bytes_per_s: self.scrub_rate.0 as u64,
            every: self.scrub_every,
        });
        options.believe_clock = self.believe_clock;
    }

    /// Checks the rules that involve more than one key.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for address in [self.http, self.native].into_iter().flatten() {
            if address.0.ip().is_loopback() {
                continue;
            }
            let tls = self.tls_cert.is_some() || self.insecure_no_tls;
            let known = self.identities.is_some() || self.insecure_no_auth;
            for (safe, missing) in [(tls, Missing::Tls), (known, Missing::Identities)] {
                if !safe {
                    let address = address.to_string();
                    return Err(ConfigError::Exposed { address, missing });
                }
            }
        }
        if let Some(peer) = self.peer
            && !peer.0.ip().is_loopback()
            && self.peer_cert.is_none()
            && !self.insecure_no_tls
        {
            let (address, missing) = (peer.to_string(), Missing::PeerTls);
            return Err(ConfigError::Exposed { address, missing });
        }
        if self.peer.is_none() && !self.join.is_empty() {
            let what = "join needs peer: the address at which the other nodes reach this one";
            return Err(ConfigError::Contradiction { what });
        }
        let of_peers = [&self.peer_cert, &self.peer_key, &self.peer_ca];
        if of_peers.iter().any(|file| file.is_some()) != of_peers.iter().all(|file| file.is_some())
        {
            let what = "peer_cert, peer_key and peer_ca belong together: set all or none";
            return Err(ConfigError::Contradiction { what });
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            let what = "tls_cert and tls_key belong together: set both or none";
            return Err(ConfigError::Contradiction { what });
        }
        if self.tls_client != ClientCertificates::Off {
            for (missing, what) in [
                (
                    self.tls_cert.is_none(),
                    "tls_client needs tls_cert and tls_key: a client shows its certificate to a server that has one",
                ),
                (
                    self.tls_client_ca.is_none(),
                    "tls_client needs tls_client_ca: the authority that signs the certificates of clients",
                ),
                (
                    self.identities.is_none(),
                    "tls_client needs identities: a certificate says who it is, the file what it may do",
                ),
            ] {
                if missing {
                    return Err(ConfigError::Contradiction { what });
                }
            }
        }
        let own_ports = self.http.is_none_or(|http| http.0.port() == 0);
        if self.http == self.native && !own_ports {
            let what = "http and native have one address: give each a port of its own";
            return Err(ConfigError::Contradiction { what });
        }
        if self.http.is_none() && self.native.is_none() && self.socket.is_none() {
            let what = "all ports are off, so there is nothing to serve";
            return Err(ConfigError::Contradiction { what });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn each_key_reads_what_it_writes() {
        for key in ServerConfig::KEYS {
            let mut config = ServerConfig::default();
            let text = (key.get)(&config);
            (key.set)(&mut config, &text).unwrap();
            assert_eq!(config, ServerConfig::default(), "{}", key.name);
        }
    }

    #[test]
    fn texts_have_units() {
        let key = |name: &str| {
            ServerConfig::KEYS
                .iter()
                .find(|key| key.name == name)
                .unwrap()
        };
        let mut config = ServerConfig::default();
        (key("drain").set)(&mut config, "1500ms").unwrap();
        (key("body_max").set)(&mut config, "1GiB").unwrap();
        (key("http").set)(&mut config, ":0").unwrap();
        assert_eq!(config.drain, Duration::from_millis(1500));
        assert_eq!(config.body_max, Size(1 << 30));
        assert_eq!(config.http.unwrap().0.to_string(), "127.0.0.1:0");
        for (name, text) in [
            ("drain", "30"),
            ("body_max", "1GB"),
            ("http", "x"),
            ("threads", "-1"),
        ] {
            assert!(
                (key(name).set)(&mut config, text).is_err(),
                "{name} = {text}"
            );
        }
    }

    #[test]
    fn others_are_not_served_without_protection() {
        let mut config = ServerConfig {
            http: "0.0.0.0:0".parse().ok(),
            ..ServerConfig::default()
        };
        assert!(matches!(
            config.check(),
            Err(ConfigError::Exposed {
                missing: Missing::Tls,
                ..
            })
        ));
        config.insecure_no_tls = true;
        assert!(matches!(
            config.check(),
            Err(ConfigError::Exposed {
                missing: Missing::Identities,
                ..
            })
        ));
        config.insecure_no_auth = true;
        config.check().unwrap();
    }
}
