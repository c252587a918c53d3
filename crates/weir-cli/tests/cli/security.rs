//! Tests `weir token` and `weir cert`: files, modes, and which output contains secrets.

use std::os::unix::fs::PermissionsExt;

use crate::run::{CommandOutput, Place, command_output};

fn mode(place: &Place, name: &str) -> u32 {
    let found = place.path(name).metadata().unwrap();
    found.permissions().mode() & 0o777
}

fn text(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path(name)).unwrap()
}

#[test]
fn a_token_is_shown_once_and_stored_as_a_hash() {
    let place = Place::new();
    let words = [
        "token",
        "create",
        "loader",
        "--right",
        "put,read orders.**",
        "-o",
        "json",
    ];
    let made = place.words(&words).ok();
    let row = made.json();
    let token = row["token"].as_str().unwrap().to_owned();
    let id = row["id"].as_str().unwrap().to_owned();
    assert!(token.starts_with(&format!("weir_{id}_")), "{token}");
    assert!(
        row["expires"].is_string(),
        "tokens end unless told otherwise"
    );
    assert!(!made.err.contains(&token), "shown once, where data goes");
    assert!(
        made.err.contains("weir serve --identities identities.toml"),
        "{}",
        made.err
    );
    assert_eq!(mode(&place, "identities.toml"), 0o600);
    let file = text(&place, "identities.toml");
    assert!(
        file.contains("hash = \"sha256:") && !file.contains(&token),
        "{file}"
    );

    place
        .words(&["token", "create", "b", "-r", "admin", "--expires", "never"])
        .ok();
    let list = place.run("token ls -o json").ok();
    assert!(!list.text().contains(&token));
    let rows = list.json();
    assert_eq!(
        (&rows[0]["id"], &rows[0]["state"]),
        (&id.clone().into(), &"valid".into())
    );
    assert!(rows[1]["expires"].is_null());

    let revoked = place.run(&format!("token revoke {id} -o json")).ok();
    assert_eq!(revoked.json()["state"], "revoked");
    assert_eq!(place.run("token ls -o json").json()[0]["state"], "revoked");
    let again = place.run(&format!("token revoke {id}")).code(2);
    assert!(again.err.contains("already revoked"), "{}", again.err);
    place.run("token revoke 00000000").code(2);
    // A name is not accepted; the error lists its ids.
    let named = place.run("token revoke b").code(2);
    let line = format!("`weir token revoke {}`", rows[1]["id"].as_str().unwrap());
    assert!(named.err.contains(&line), "{}", named.err);
    let gone = place.run("token revoke loader").code(2);
    assert!(gone.err.contains("`weir token ls`"), "{}", gone.err);
}

#[test]
fn a_token_is_written_to_a_new_file_only() {
    let place = Place::new();
    let words = [
        "token", "create", "a", "-r", "read **", "--out", "a.token", "-o", "json",
    ];
    let made = place.words(&words).ok();
    assert!(made.json()["token"].is_null());
    let token = text(&place, "a.token");
    assert_eq!((token.len(), mode(&place, "a.token")), (79, 0o600));
    assert!(!made.text().contains(token.trim()) && !made.err.contains(token.trim()));
    place.words(&words).code(1);
    assert_eq!(text(&place, "a.token"), token);
    assert_eq!(
        place
            .run("token ls -o json")
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn an_invalid_request_is_reported_and_changes_nothing() {
    let place = Place::new();
    let wrong = place
        .words(&["token", "create", "a", "-r", "write orders"])
        .code(2);
    assert!(
        wrong.err.contains("the rights are create, destroy, put"),
        "{}",
        wrong.err
    );
    place
        .words(&["token", "create", "a b", "-r", "read **"])
        .code(2);
    place
        .words(&["token", "create", "a", "-r", "read **", "--expires", "soon"])
        .code(2);
    assert!(!place.path("identities.toml").exists());
    let missing = place.run("token ls").code(1);
    assert!(missing.err.contains("weir token create"), "{}", missing.err);
    place.write("identities.toml", "[[token]]\nid = 3\n");
    let wrong = place.run("token ls").code(1);
    assert!(wrong.err.contains("identities.toml:2:"), "{}", wrong.err);
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(place.path("identities.toml"), open).unwrap();
    let wrong = place.run("token ls").code(7);
    assert!(wrong.err.contains("chmod 600"), "{}", wrong.err);
}

#[test]
fn an_authority_signs_for_servers_and_clients() {
    let place = Place::new();
    let made = place
        .words(&["cert", "ca", "pki", "--name", "the authority", "-o", "json"])
        .ok();
    assert_eq!(made.json()["authority"], true);
    assert!(
        made.err.contains("weir cert issue HOST --ca pki"),
        "{}",
        made.err
    );
    assert_eq!(
        (mode(&place, "pki"), mode(&place, "pki/ca.key")),
        (0o700, 0o600)
    );
    let key = text(&place, "pki/ca.key");
    let again = place.run("cert ca pki").code(1);
    assert!(again.err.contains("ca.pem"), "{}", again.err);
    assert_eq!(text(&place, "pki/ca.key"), key);

    let issue = "cert issue a.example 127.0.0.1 --ca pki --expires 5d -o json";
    let made = place.run(issue).ok();
    let row = made.json();
    assert_eq!(row["names"], "a.example 127.0.0.1");
    assert_eq!(
        (&row["issuer"], &row["days"]),
        (&"the authority".into(), &4.into())
    );
    assert!(
        made.err
            .contains("--tls-cert pki/a.example.pem --tls-key pki/a.example.key")
    );
    assert_eq!(mode(&place, "pki/a.example.key"), 0o600);
    place.run(issue).code(1);
    let client = place
        .run("cert issue spiffe://x/loader --ca pki --for client -o json")
        .ok();
    assert!(client.err.contains("[[certificate]]"), "{}", client.err);
    place.run("cert issue a_b --ca pki").code(2);
    // An issued certificate cannot issue another one.
    std::fs::create_dir(place.path("fake")).unwrap();
    for (from, to) in [("a.example.pem", "ca.pem"), ("a.example.key", "ca.key")] {
        std::fs::copy(place.path("pki").join(from), place.path("fake").join(to)).unwrap();
    }
    let refused = place.run("cert issue b.example --ca fake").code(2);
    assert!(
        refused.err.contains("may not sign other certificates"),
        "{}",
        refused.err
    );
    // No certificate is valid longer than its authority.
    place.run("cert ca short --expires 2d").ok();
    let made = place
        .run("cert issue c.example --ca short --expires 90d -o json")
        .ok();
    assert!(made.json()["days"].as_u64().unwrap() <= 2);
    let shown = place
        .run("cert show short/c.example.pem -o json")
        .ok()
        .json();
    assert_eq!(shown[0]["state"], "valid");
    place.run("cert show short/c.example.key").code(1);
}

/// Runs a command line in a shell that limits the size of files, in blocks of 512 or 1,024 bytes.
fn run_with_small_files(place: &Place, blocks: u32, line: &str) -> CommandOutput {
    let mut shell = place.command("sh");
    shell.args(["-c", &format!("ulimit -f {blocks}; exec \"$0\" \"$@\"")]);
    shell.arg(env!("CARGO_BIN_EXE_weir")).args(line.split(' '));
    let done = command_output(shell.output().unwrap());
    assert_ne!(done.code, 0, "{}", done.text());
    done
}

#[test]
fn a_file_that_cannot_be_written_whole_is_removed() {
    let place = Place::new();
    let count = |folder: &str| place.path(folder).read_dir().unwrap().count();
    run_with_small_files(&place, 0, "cert ca pki");
    assert_eq!(count("pki"), 0);
    run_with_small_files(&place, 0, "config create");
    assert!(!place.path("weir.toml").exists());
    run_with_small_files(&place, 0, "token create a --right admin --out a.token");
    assert!(!place.path("a.token").exists());
    // The key and the token fit, but the certificate and the file of identities do not.
    place.run("cert ca pki").ok();
    let names: Vec<String> = (0..60).map(|n| format!("host-{n}.example")).collect();
    let issue = format!("cert issue {} --ca pki", names.join(" "));
    run_with_small_files(&place, 1, &issue);
    assert_eq!(count("pki"), 2);
    place.run(&issue).ok();
    for n in 0..10 {
        place.run(&format!("token create t{n} --right admin")).ok();
    }
    let create = "token create b --right admin --out b.token";
    let failed = run_with_small_files(&place, 1, create);
    assert!(failed.err.contains("identities.toml"), "{}", failed.err);
    assert!(!place.path("b.token").exists());
    place.run(create).ok();
}
