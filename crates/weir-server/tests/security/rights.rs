//! Tokens and their rights, over the native port.

use std::time::Instant;

use weir_core::{GroupStep, Intention, Operation};
use weir_server::Rate;
use weir_server::security::{IdentitiesFile, Token, now_ms};

use crate::peer::assert_line;
use crate::world::Files;

#[test]
fn without_identities_a_local_client_has_all_rights() {
    let world = Files::new().start(|_| {});
    let mut peer = world.plain();
    assert_line(&peer.hello(""), "_notice_hello");
    assert_line(
        &peer.ask(":_topic\tt\n_request_create"),
        "_notice_committed",
    );
    assert_line(&peer.put("t", "1"), "_notice_committed");
    assert_line(&peer.ask("_request_status"), "_data_status");
    // A server without identities ignores a token.
    let token = Token::random().unwrap();
    assert_line(&world.plain().hello(token.expose()), "_notice_hello");
}

#[test]
fn a_client_without_a_valid_token_is_refused() {
    let files = Files::new();
    let good = files.token("good", &["all **"]);
    let expired = files.token_until("expired", &["all **"], Some(now_ms() - 1));
    let removed = files.token("removed", &["all **"]);
    let path = files.path("identities.toml");
    let file = IdentitiesFile::read(&path).unwrap();
    file.without_token(removed.id(), now_ms())
        .unwrap()
        .write()
        .unwrap();
    let world = files.start(|_| {});
    let mut wrong = good.expose().to_owned();
    let last = if wrong.ends_with('0') { "1" } else { "0" };
    wrong.replace_range(77.., last);
    let invalid = [
        String::new(),
        "x".to_owned(),
        wrong,
        expired.expose().to_owned(),
        removed.expose().to_owned(),
        Token::random().unwrap().expose().to_owned(),
        "z".repeat(4_000),
    ];
    let mut answers = Vec::new();
    for token in &invalid {
        let mut peer = world.plain();
        let answer = peer.hello(token);
        assert_line(&answer, "_error_unauthenticated");
        assert_eq!(peer.read(), None, "the connection has ended");
        answers.push(answer);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "the response does not reveal the cause");
    assert_line(&world.plain().hello(good.expose()), "_notice_hello");
    world.audited(&["unauthenticated", removed.id()]);
}

#[test]
fn failed_attempts_delay_an_address_and_lock_no_principal_out() {
    let files = Files::new();
    let good = files.token("good", &["all **"]);
    let world = files.start(|_| {});
    let mut delayed = 0;
    for _ in 0..15 {
        let answer = world.plain().hello(Token::random().unwrap().expose());
        assert_line(&answer, "_error_unauthenticated");
        delayed += usize::from(answer.contains(":_retry_ms\t"));
    }
    assert_eq!(delayed, 5, "the first ten attempts are not delayed");
    assert_line(&world.plain().hello(good.expose()), "_notice_hello");
}

/// Every operation of the port, with every right but its own, and with it.
#[test]
fn each_operation_needs_its_right_on_its_topic() {
    let table = [
        (
            "create",
            ":_topic\tt.new\n_request_create",
            "_notice_committed",
        ),
        ("put", ":_topic\tt.a\n_request_put\nx", "_notice_committed"),
        (
            "delete",
            ":_topic\tt.a\n:_key\tk\n_request_delete",
            "_notice_committed",
        ),
        (
            "read",
            ":_topic\tt.a\n:_offset\t1\n_request_record",
            "_data_value",
        ),
        ("read", ":_topic\tt.a\n_request_scan", "_data_keys"),
        ("read", ":_topic\tt.a\n_request_topic", "_data_topics"),
        ("read", ":_topic\tt.a\n_request_program", "_data_program"),
        ("admin", "_request_status", "_data_status"),
        ("admin", "_request_sync", "_notice_sync"),
        (
            "destroy",
            ":_topic\tt.a\n_request_destroy",
            "_notice_committed",
        ),
    ];
    let all = [
        "create", "destroy", "put", "delete", "read", "group", "program", "admin",
    ];
    let files = Files::new();
    let one = |right: &str| files.token(right, &[&format!("{right} t.*")]);
    let others = |right: &str| {
        let others = all.iter().filter(|other| **other != right);
        let others = others.copied().collect::<Vec<_>>().join(",");
        files.token(&format!("not-{right}"), &[&format!("{others} **")])
    };
    let elsewhere = |right: &str| files.token(&format!("{right}-u"), &[&format!("{right} u.*")]);
    let tokens: Vec<_> = table
        .iter()
        .map(|(right, ..)| (one(right), others(right), elsewhere(right)))
        .collect();
    let world = files.start(|_| {});
    world.create("t.a");
    for ((right, request, answer), (own, other, elsewhere)) in table.iter().zip(&tokens) {
        let ask = |token: &Token| {
            let mut peer = world.plain();
            assert_line(&peer.hello(token.expose()), "_notice_hello");
            peer.ask(request)
        };
        assert_line(&ask(other), "_error_forbidden");
        world.audited(&["\"denied\"", right, &format!("not-{right}")]);
        if *right != "admin" {
            assert_line(&ask(elsewhere), "_error_forbidden");
        }
        let answered = ask(own);
        let found = answered.lines().any(|line| line == *answer);
        // The response to a read of a record is binary, so only its method is visible.
        assert!(found || answered.contains(answer), "{request}:\n{answered}");
    }
}

#[test]
fn lists_and_reads_show_only_readable_topics() {
    let files = Files::new();
    let token = files.token("a", &["put,read mine.*"]);
    let world = files.start(|_| {});
    for topic in ["mine.a", "mine.b", "theirs"] {
        world.create(topic);
    }
    let mut peer = world.plain();
    assert_line(&peer.hello(token.expose()), "_notice_hello");
    let list = peer.ask("_request_topics");
    assert!(
        list.contains("mine.a ") && list.contains("mine.b "),
        "{list}"
    );
    assert!(!list.contains("theirs"), "{list}");
    let refused = peer.ask(":_topic\ttheirs\n:_tag\tl\n_request_listen");
    assert!(refused.contains("_error_"), "{refused}");
    // The topics of the store need a separate pattern, and are read-only.
    let all = world.files.token("all", &["all **", "all .weir.**"]);
    world.server.reload().unwrap();
    let mut peer = world.plain();
    assert_line(&peer.hello(all.expose()), "_notice_hello");
    world.audited(&["reload"]);
    assert_line(&peer.list(".weir.audit"), "_data_topics");
    let refused = peer.put(".weir.audit", "forged");
    assert_line(&refused, "_error_name_bad");
    let own = world.files.token("plain", &["all **"]);
    world.server.reload().unwrap();
    let mut peer = world.plain();
    assert_line(&peer.hello(own.expose()), "_notice_hello");
    assert_line(&peer.list(".weir.audit"), "_error_forbidden");
}

#[test]
fn requests_over_the_rate_are_refused_with_a_time_to_retry() {
    let files = Files::new();
    let overloading = files.token("overloading", &["all **"]);
    let other = files.token("other", &["all **"]);
    let world = files.start(|config| {
        config.rate_bytes = Rate::Units(1_000);
        config.rate_requests = Rate::Off;
        config.rate_fuel = Rate::Off;
    });
    world.create("t");
    let mut peer = world.plain();
    assert_line(&peer.hello(overloading.expose()), "_notice_hello");
    let large = "x".repeat(50_000);
    let begin = Instant::now();
    assert_line(&peer.put("t", &large), "_notice_committed");
    let refused = peer.put("t", "y");
    assert_line(&refused, "_failure_rate");
    let pause = refused.split(":_retry_ms\t").nth(1).unwrap();
    let pause: u64 = pause.lines().next().unwrap().parse().unwrap();
    let elapsed = u64::try_from(begin.elapsed().as_millis()).unwrap();
    let is_right = pause <= 51_000 && pause + elapsed >= 45_000;
    assert!(is_right, "{pause} after {elapsed}");
    // The address has a debt too, so another token does not help.
    let mut peer = world.plain();
    assert_line(&peer.hello(other.expose()), "_notice_hello");
    assert_line(&peer.put("t", "y"), "_failure_rate");
    assert_eq!(world.values("t").len(), 2, "CREATE and one record");
}

/// Groups: the right `group`, and the rights for what the store writes for a group.
#[test]
fn a_group_writes_dead_letters_only_with_the_rights_of_its_creator() {
    let files = Files::new();
    let tokens = [
        files.token("worker", &["group,read jobs"]),
        files.token("creator", &["group,read jobs", "create,put jobs.dead"]),
        files.token("partial", &["group,read jobs", "put jobs.dead"]),
        files.token("reader", &["read jobs"]),
    ];
    let ids = tokens.each_ref().map(|token| token.id().to_owned());
    let world = files.start(|_| {});
    world.create("jobs");
    let url = format!("weir://{}", world.native);
    let [worker, creator, partial, reader] = tokens.map(|token| {
        let mut options = weir::ConnectOptions::default();
        options.token = Some(token.expose().to_owned());
        let weir = weir::Weir::connect_with(&url, &options).unwrap();
        weir.topic("jobs").unwrap()
    });
    let code = |error: weir::WeirError| match error {
        weir::WeirError::Store(weir::StoreError::Remote { code, .. }) => code,
        other => panic!("{other:?}"),
    };
    let forbidden = weir::ErrorCode::Forbidden;
    let mut setup = weir::GroupSetup::new(weir::GroupMode::Shared);
    // Without dead letters the right `group` suffices, and is needed.
    let mut plain = worker.group_with("plain", &setup).unwrap();
    let denied = reader.group_with("plain", &setup).unwrap_err();
    assert_eq!(code(denied), forbidden);
    assert_eq!(code(reader.groups().unwrap_err()), forbidden);
    setup.attempts_max = 1;
    setup.dead_letters = "jobs.dead";
    for without in [&worker, &partial] {
        let denied = without.group_with("limited", &setup).unwrap_err();
        assert_eq!(code(denied), forbidden);
    }
    world.audited(&["\"denied\"", "create", "jobs.dead"]);
    assert!(worker.group_info("limited").unwrap().is_none());
    drop(creator.group_with("limited", &setup).unwrap());
    // A member without rights on the dead letter topic can then cause dead letters.
    let now = std::time::Duration::ZERO;
    let put = Intention::new(
        "jobs",
        Operation::Put {
            key: b"k",
            value: b"v",
        },
    );
    world.store.propose(&[put]).unwrap().wait().unwrap();
    let mut limited = worker.group_with("limited", &setup).unwrap().member("m");
    let works = limited.claim(1, now).unwrap();
    assert_eq!(works.len(), 1);
    assert_eq!(limited.nack(&works, now, "no").unwrap(), []);
    assert!(limited.claim(1, now).unwrap().is_empty());
    assert_eq!(limited.info().unwrap().dead_lettered, 1);
    assert_eq!(world.values("jobs.dead").len(), 3, "CREATE, reason, record");
    // The token is revoked while a claim waits.
    assert_eq!(plain.claim(1, now).unwrap().len(), 1);
    let waiting = std::thread::spawn(move || plain.claim(1, crate::world::TEST_TIMEOUT));
    let path = world.files.path("identities.toml");
    let mut file = IdentitiesFile::read(&path).unwrap();
    for id in ids {
        file = file.without_token(&id, now_ms()).unwrap();
    }
    file.write().unwrap();
    world.server.reload().unwrap();
    let denied = code(waiting.join().unwrap().unwrap_err());
    let unauthenticated = weir::ErrorCode::Unauthenticated;
    assert!(
        denied == unauthenticated || denied == forbidden,
        "{denied:?}"
    );
}

/// Operations that clients may not propose.
#[test]
fn clients_cannot_propose_internal_operations() {
    let world = Files::new().start(|_| {});
    world.create("t");
    let list = weir_core::group::Offsets::Plain(&[1]);
    let steps = [
        GroupStep::DeadLettersWritten { numbers: list },
        GroupStep::Claim {
            member: b"m",
            lease_ms: 0,
            seen: 0,
            through: 1,
            offsets: list,
            keys: None,
        },
    ];
    let url = format!("weir://{}", world.native);
    let group = "g";
    let steps = steps.map(|step| Operation::Cursor { group, step });
    let trim = Operation::Trim { through: 1 };
    for operation in steps.into_iter().chain([trim]) {
        let remote = weir::Weir::connect(&url).unwrap();
        let intention = Intention::new("t", operation);
        let mut session = remote.session(weir::ClientId([1; 16]));
        let refused = session.execute(&[intention]).unwrap_err();
        let weir::WeirError::Store(weir::StoreError::Remote { text, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(text.contains("clients must not send"), "{text}");
    }
}
