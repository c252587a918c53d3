//! Tests TLS between the nodes of a cluster, with certificates of `weir cert`.

use std::io::BufRead as _;
use std::path::Path;

use crate::{Served, ask, free_address, serve_by, weir};

/// Runs a command. Returns whether it succeeded, and its standard error.
fn run(place: &Path, words: &[&str]) -> (bool, String) {
    let output = weir(place).args(words).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    (output.status.success(), printed)
}

fn done(place: &Path, line: &str) {
    let words: Vec<_> = line.split_whitespace().collect();
    let (is_done, printed) = run(place, &words);
    assert!(is_done, "{line}: {printed}");
}

/// Flags for a node with the certificate `name` of an authority.
fn flags(pki: &Path, authority: &str, own: &str, name: &str, peer: &str) -> Vec<String> {
    let file = |directory: &str, name: &str| pki.join(directory).join(name).display().to_string();
    [
        ("--peer", peer.to_owned()),
        ("--peer-cert", file(own, &format!("{name}.pem"))),
        ("--peer-key", file(own, &format!("{name}.key"))),
        ("--peer-ca", file(authority, "ca.pem")),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

fn node(place: &Path, flags: &[String], join: Option<&str>) -> Served {
    let mut words: Vec<&str> = flags.iter().map(String::as_str).collect();
    words.extend(join.into_iter().flat_map(|join| ["--join", join]));
    serve_by(weir(place), &words)
}

/// The error of a node that cannot join.
fn refused(place: &Path, flags: &[String], join: &str) -> String {
    let mut words = vec![
        "serve", "--at", "refused", "--http", ":0", "--native", "off",
    ];
    words.extend(flags.iter().map(String::as_str));
    words.extend(["--join", join]);
    let (is_done, printed) = run(place, &words);
    assert!(!is_done, "{printed}");
    assert!(!place.join("refused/cluster").exists());
    printed
}

#[test]
fn nodes_use_tls_and_reject_another_certificate_with_the_reason() {
    let pki = tempfile::tempdir().unwrap();
    for line in [
        "cert ca ours",
        "cert issue 127.0.0.1 --for node --ca ours",
        "cert issue localhost --for node --ca ours",
        "cert issue server.example --ca ours",
        "cert issue client --for client --ca ours",
        "cert ca theirs",
        "cert issue 127.0.0.1 --for node --ca theirs",
    ] {
        done(pki.path(), line);
    }
    let issue = "cert issue ::1 --for node --ca ours";
    let words: Vec<_> = issue.split_whitespace().collect();
    let (_, printed) = run(pki.path(), &words);
    assert!(printed.contains("weir serve --peer-cert"), "{printed}");
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [at, own] = [(); 2].map(|()| free_address());
    done(first.path(), &format!("cluster init --at data --peer {at}"));
    let ours = |name, peer: &str| flags(pki.path(), "ours", "ours", name, peer);
    let leader = node(first.path(), &ours("127.0.0.1", &at), None);
    done(first.path(), "put orders one --key k --at data");

    for (what, given, expected) in [
        (
            "another authority signed it",
            flags(pki.path(), "ours", "theirs", "127.0.0.1", &own),
            "does not accept the certificate of this node: another authority signed it",
        ),
        (
            "it is not for the peer protocol",
            ours("server.example", &own),
            "it was not issued with `weir cert issue HOST --for node`",
        ),
        (
            "it is for a client",
            ours("client", &own),
            "is not that of a node at 127.0.0.1",
        ),
        (
            "it is for a node at another host",
            ours("localhost", &own),
            "is not that of a node at 127.0.0.1",
        ),
        (
            "the node trusts the other authority",
            flags(pki.path(), "theirs", "theirs", "127.0.0.1", &own),
            "another authority signed it",
        ),
        (
            "no TLS",
            vec!["--peer".to_owned(), own.clone()],
            "use TLS: set peer_cert",
        ),
    ] {
        let printed = refused(second.path(), &given, &at);
        assert!(printed.contains(expected), "{what}: {printed}");
        // The advice is not about the number of the node.
        assert!(!printed.contains("--node"), "{what}: {printed}");
    }
    // The certificate of the leader names only 127.0.0.1.
    let port = at.rsplit_once(':').unwrap().1;
    let printed = refused(
        second.path(),
        &ours("localhost", &own),
        &format!("localhost:{port}"),
    );
    assert!(
        printed.contains("does not accept the certificate of the peer"),
        "{printed}"
    );
    let printed = refused(second.path(), &ours("127.0.0.1", &own)[..4], &at);
    assert!(printed.contains("peer_ca belong together"), "{printed}");

    // The cluster is unchanged, and accepts a node with a certificate of its authority.
    done(first.path(), "put orders two --key k --at data");
    let member = node(second.path(), &ours("127.0.0.1", &own), Some(&at));
    let until = std::time::Instant::now() + crate::TIMEOUT;
    let has = || {
        let words = ["get", "orders", "-k", "k", "--at", "data"];
        let output = weir(second.path()).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("two")
    };
    while !has() {
        assert!(std::time::Instant::now() < until, "{:?}", member.printed);
    }
    drop((leader, member));
}

#[test]
fn a_node_with_tls_cannot_join_a_cluster_without_tls() {
    let pki = tempfile::tempdir().unwrap();
    done(pki.path(), "cert ca ours");
    done(pki.path(), "cert issue 127.0.0.1 --for node --ca ours");
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [at, own] = [(); 2].map(|()| free_address());
    done(first.path(), &format!("cluster init --at data --peer {at}"));
    let plain = ["--peer".to_owned(), at.clone()];
    let _leader = node(first.path(), &plain, None);
    let given = flags(pki.path(), "ours", "ours", "127.0.0.1", &own);
    let printed = refused(second.path(), &given, &at);
    assert!(printed.contains("perhaps it has no peer_cert"), "{printed}");
}

#[test]
fn the_expiry_of_a_certificate_for_peers_is_a_warning_and_a_metric() {
    let pki = tempfile::tempdir().unwrap();
    done(pki.path(), "cert ca ours");
    let issue = "cert issue 127.0.0.1 --for node --ca ours --expires 5d";
    done(pki.path(), issue);
    let place = tempfile::tempdir().unwrap();
    let at = free_address();
    done(place.path(), &format!("cluster init --at data --peer {at}"));
    let given = flags(pki.path(), "ours", "ours", "127.0.0.1", &at);
    let mut served = node(place.path(), &given, None);
    let mut printed = String::new();
    while !printed.contains("warning: the certificate of the node for its peers expires in 4 days")
    {
        assert!(
            served.lines.read_line(&mut printed).unwrap() > 0,
            "{printed}"
        );
    }
    let expires = || {
        let page = ask(&served.address, "GET /metrics", "");
        let name = "\nweir_cluster_certificate_expires_seconds ";
        let (_, rest) = page.split_once(name).unwrap();
        rest.lines().next().unwrap().parse::<u64>().unwrap()
    };
    let old = expires();

    // A renewed certificate applies without a restart.
    for end in ["pem", "key"] {
        let file = pki.path().join("ours").join(format!("127.0.0.1.{end}"));
        std::fs::rename(file, pki.path().join(format!("old.{end}"))).unwrap();
    }
    done(
        pki.path(),
        "cert issue 127.0.0.1 --for node --ca ours --expires 30d",
    );
    let days = (expires() - old).div_ceil(86_400);
    assert!([25, 26].contains(&days), "{days}");
}
