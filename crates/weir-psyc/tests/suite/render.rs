//! Rendering: the vectors, and parsing of rendered packets.

use crate::feed::{Joined, feed};
use crate::{generate, vectors};
use proptest::prelude::*;
use weir_psyc::{
    Dict, DictEvent, Entry, Escaped, Item, Length, Limits, List, ListEvent, Mode, Modifier,
    Operator, Packet, PacketSizes, ParseStep, Parser, RenderError, Renderer, StateOperation, Step,
    Update, UpdateEvent, unescape,
};

/// A packet description that owns its bytes.
#[derive(Debug, Default, Clone)]
struct Description {
    routing: Vec<(Operator, Vec<u8>, Vec<u8>)>,
    entity: Vec<(Operator, Vec<u8>, Vec<u8>, Length)>,
    state: Option<StateOperation>,
    method: Vec<u8>,
    data: Vec<u8>,
    raw: Option<Vec<u8>>,
    length: Length,
}

fn with_packet<T>(description: &Description, function: impl FnOnce(&Packet<'_>) -> T) -> T {
    let routing: Vec<Modifier<'_>> = description
        .routing
        .iter()
        .map(|(operator, name, value)| Modifier::new(*operator, name, value))
        .collect();
    let entity: Vec<Modifier<'_>> = description
        .entity
        .iter()
        .map(|(operator, name, value, length)| Modifier {
            length: *length,
            ..Modifier::new(*operator, name, value)
        })
        .collect();
    let mut packet = match &description.raw {
        Some(raw) => Packet::raw(&routing, raw),
        None => Packet::new(&routing, &entity, &description.method, &description.data),
    };
    if let Some(state) = description.state {
        packet = packet.with_state(state);
    }
    function(&packet.with_length(description.length))
}

/// Renders with every function and checks that the results agree.
fn render(renderer: Renderer, description: &Description) -> Result<Vec<u8>, RenderError> {
    with_packet(description, |packet| {
        let mut appended = b"before".to_vec();
        let result = renderer.append(packet, &mut appended);
        let size = renderer.size(packet);
        if let Err(error) = result {
            assert_eq!(appended, b"before");
            assert_eq!(size, Err(error));
            return Err(error);
        }
        let bytes = appended.split_off(6);
        assert_eq!(size, Ok(bytes.len() as u64));
        check_sizes(renderer.sizes(packet).expect("a size"), &bytes);
        let mut exact = vec![0xaa; bytes.len()];
        assert_eq!(renderer.render(packet, &mut exact), Ok(bytes.len()));
        assert_eq!(exact, bytes);
        let mut short = vec![0xaa; bytes.len() - 1];
        let refused = renderer.render(packet, &mut short);
        assert_eq!(
            refused,
            Err(RenderError::BufferTooSmall(bytes.len() as u64))
        );
        assert!(
            short.iter().all(|&byte| byte == 0xaa),
            "a refused buffer is untouched"
        );
        Ok(bytes)
    })
}

/// Compares the sizes with those that a parser in routing-only mode finds.
fn check_sizes(sizes: PacketSizes, bytes: &[u8]) {
    let (mut routing, mut content, mut announced) = (0, None, None);
    let mut parser = Parser::new(Mode::RoutingOnly);
    loop {
        match parser.step(bytes) {
            ParseStep::Routing(_) => routing = parser.consumed() as u64,
            ParseStep::Content { data, .. } => {
                content = Some(data.len() as u64);
                announced = parser.content_length();
            }
            ParseStep::Complete => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sizes.routing, routing);
    assert_eq!(sizes.content, content);
    assert_eq!(sizes.sized.then_some(sizes.content).flatten(), announced);
    assert_eq!(sizes.total, bytes.len() as u64);
}

fn describe(items: &[Vec<u8>]) -> Description {
    let mut description = Description::default();
    for item in items {
        let (length, item) = match item.split_first() {
            Some((b'!', item)) => (Length::Force, item),
            Some((b'-', item)) => (Length::Forbid, item),
            _ => (Length::Auto, &item[..]),
        };
        let (kind, rest) = item.split_first().expect("an item");
        let modifier = || {
            let (operator, rest) = rest.split_first().expect("operator");
            let tab = rest.iter().position(|&byte| byte == b'\t').expect("a tab");
            let operator = Operator::from_byte(*operator).expect("operator");
            (operator, rest[..tab].to_vec(), rest[tab + 1..].to_vec())
        };
        match kind {
            b'R' => description.routing.push(modifier()),
            b'E' => {
                let (operator, name, value) = modifier();
                description.entity.push((operator, name, value, length));
            }
            b'S' if rest == b"=" => description.state = Some(StateOperation::Reset),
            b'S' => description.state = Some(StateOperation::Resync),
            b'M' => description.method = rest.to_vec(),
            b'D' => description.data = rest.to_vec(),
            b'C' => description.raw = Some(rest.to_vec()),
            b'L' => {
                description.length = if rest == b"!" {
                    Length::Force
                } else {
                    Length::Forbid
                };
            }
            other => panic!("item {other}"),
        }
    }
    description
}

#[test]
fn render_vectors_hold() {
    let cases = vectors::read("render.txt", &["item", "threshold"]);
    for case in &cases {
        let renderer = match case.setting("threshold") {
            None => Renderer::new(),
            Some("max") => Renderer::shortest(),
            Some(number) => Renderer::with_threshold(number.parse().expect("a number")),
        };
        let description = describe(&case.all("item"));
        let text = match render(renderer, &description) {
            Ok(bytes) => format!("packet\t{}\n", Escaped(&bytes)),
            Err(error) => format!("error\t{error:?}\n"),
        };
        case.check(&text, "rendered");
    }
    println!("render.txt: {} cases", cases.len());
}

#[test]
fn container_render_vectors_hold() {
    let cases = vectors::read("render-containers.txt", &["item", "kind"]);
    for case in &cases {
        let kind = case.setting("kind").expect("kind");
        let items = case.all("item");
        let rows: Vec<Vec<&[u8]>> = items
            .iter()
            .map(|item| {
                let fields = item.split(|&byte| byte == b'\t');
                fields
                    .map(|field| if field == b"~" { &b""[..] } else { field })
                    .collect()
            })
            .collect();
        let mut out = Vec::new();
        let result = render_container(kind, &rows, &mut out);
        let text = match result {
            Ok(()) => format!("{kind}\t{}\n", String::from_utf8_lossy(&out)),
            Err(error) => format!("error\t{error:?}\n"),
        };
        case.check(&text.replace("\t +", "\t\\x20+"), "rendered");
    }
    println!("render-containers.txt: {} cases", cases.len());
}

fn item<'a>(ty: &'a [u8], value: &'a [u8]) -> Item<'a> {
    Item {
        ty: (!ty.is_empty()).then_some(ty),
        value,
        length: Length::Auto,
    }
}

fn render_container(kind: &str, rows: &[Vec<&[u8]>], out: &mut Vec<u8>) -> Result<(), RenderError> {
    let renderer = Renderer::new();
    let mut ty = None;
    let (mut items, mut entries, mut index, mut operation) =
        (Vec::new(), Vec::new(), Vec::new(), None);
    for row in rows {
        match row[..] {
            [b"type", name] => ty = Some(name),
            [b"elem", ty, value] => items.push(item(ty, value)),
            [b"entry", key, ty, value] => entries.push(Entry::new(key, item(ty, value))),
            [b"step", step] => index.push(match step.split_first() {
                Some((b'#', number)) => {
                    Step::Pos(String::from_utf8_lossy(number).parse().expect("a number"))
                }
                Some((b'.', name)) => Step::Field(name),
                Some((b'{', key)) => Step::Key(key, Length::Auto),
                _ => panic!("step"),
            }),
            [b"op", operator, ty, value] => {
                let operator = Operator::from_byte(operator[0]).expect("operator");
                operation = Some((operator, item(ty, value)));
            }
            _ => panic!("row"),
        }
    }
    let mut buffer = [0; 200];
    let pieces = in_pieces(renderer, kind, ty, &items, &entries, &index, operation);
    let size = match kind {
        "list" => {
            renderer.append_list(ty, &items, out)?;
            assert_eq!(renderer.list_size(ty, &items)?, out.len() as u64);
            renderer.list(ty, &items, &mut buffer)?
        }
        "dict" => {
            renderer.append_dict(ty, &entries, out)?;
            assert_eq!(renderer.dict_size(ty, &entries)?, out.len() as u64);
            renderer.dict(ty, &entries, &mut buffer)?
        }
        "key" => {
            renderer.append_key(entries[0].key, Length::Auto, out)?;
            renderer.key(entries[0].key, Length::Auto, &mut buffer)?
        }
        "value" => {
            renderer.append_dict_value(&entries[0].value, out)?;
            renderer.dict_value(&entries[0].value, &mut buffer)?
        }
        _ => {
            let (operator, item) = operation.expect("an operation");
            renderer.append_update(&index, operator, &item, out)?;
            assert_eq!(
                renderer.update_size(&index, operator, &item)?,
                out.len() as u64
            );
            renderer.update(&index, operator, &item, &mut buffer)?
        }
    };
    assert_eq!(&buffer[..size], &out[..]);
    assert_eq!(pieces, *out, "pieces, one after the other");
    Ok(())
}

/// Renders the container piece by piece, each into a slice of exactly its size.
fn in_pieces(
    renderer: Renderer,
    kind: &str,
    ty: Option<&[u8]>,
    items: &[Item<'_>],
    entries: &[Entry<'_>],
    index: &[Step<'_>],
    operation: Option<(Operator, Item<'_>)>,
) -> Vec<u8> {
    type Write<'a> = &'a dyn Fn(&mut [u8]) -> Result<usize, RenderError>;
    let mut out = Vec::new();
    let mut put = |size: Result<u64, RenderError>, write: Write<'_>| {
        let Ok(size) = size else {
            assert!(write(&mut [0; 200]).is_err());
            return;
        };
        let mut piece = vec![0xaa; size as usize];
        assert_eq!(write(&mut piece), Ok(piece.len()));
        if let Some(short) = piece.len().checked_sub(1) {
            let refused = write(&mut vec![0xaa; short]);
            assert_eq!(refused, Err(RenderError::BufferTooSmall(size)));
        }
        out.extend_from_slice(&piece);
    };
    match kind {
        "list" => {
            put(renderer.list_size(ty, &[]), &|out| {
                renderer.list(ty, &[], out)
            });
            for item in items {
                put(renderer.element_size(item), &|out| {
                    renderer.element(item, out)
                });
            }
        }
        "dict" => {
            put(renderer.dict_size(ty, &[]), &|out| {
                renderer.dict(ty, &[], out)
            });
            for entry in entries {
                let (key, length, value) = (entry.key, entry.key_length, &entry.value);
                put(renderer.key_size(key, length), &|out| {
                    renderer.key(key, length, out)
                });
                put(renderer.dict_value_size(value), &|out| {
                    renderer.dict_value(value, out)
                });
            }
        }
        "key" => {
            let key = entries[0].key;
            put(renderer.key_size(key, Length::Auto), &|out| {
                renderer.key(key, Length::Auto, out)
            });
        }
        "value" => {
            let value = &entries[0].value;
            put(renderer.dict_value_size(value), &|out| {
                renderer.dict_value(value, out)
            });
        }
        _ => {
            for step in index {
                put(renderer.step_size(step), &|out| renderer.step(step, out));
            }
            let (operator, item) = operation.expect("an operation");
            put(renderer.update_size(&[], operator, &item), &|out| {
                renderer.update(&[], operator, &item, out)
            });
        }
    }
    out
}

/// Renders the events of a parser again, with lengths as parsed.
pub fn rerender(packet: &[u8]) -> Vec<u8> {
    let mut parser = Parser::new(Mode::Full);
    let (mut routing, mut entity) = (Vec::new(), Vec::new());
    let (mut state, mut body, mut length) = (None, None, None);
    loop {
        match parser.step(packet) {
            ParseStep::Routing(variable) => routing.push(Modifier::from(variable)),
            ParseStep::Entity(variable) => entity.push(Modifier::from(variable)),
            ParseStep::StateReset => state = Some(StateOperation::Reset),
            ParseStep::StateResync => state = Some(StateOperation::Resync),
            ParseStep::Body { method, data, .. } => body = Some((method, data)),
            ParseStep::Complete => break,
            other => panic!("{other:?}"),
        }
        length = parser.content_length().or(length);
    }
    let (method, data) = body.unwrap_or_default();
    let mut rendered = Packet::new(&routing, &entity, method, data);
    if let Some(state) = state {
        rendered = rendered.with_state(state);
    }
    let mut out = Vec::new();
    let rendered = rendered.with_length(Length::as_parsed(length.is_some()));
    Renderer::new()
        .append(&rendered, &mut out)
        .expect("what was parsed can be rendered");
    out
}

fn operator() -> impl Strategy<Value = Operator> {
    proptest::sample::select(Operator::ALL.to_vec())
}

fn description() -> impl Strategy<Value = Description> {
    let line = generate::data().prop_map(|data| data.into_iter().filter(|&b| b != b'\n').collect());
    let routing = prop::collection::vec((operator(), generate::keyword(), line), 0..3);
    let length = prop_oneof![6 => Just(Length::Auto), 1 => Just(Length::Force)];
    let entity = (
        operator(),
        generate::keyword(),
        generate::data(),
        length.clone(),
    );
    let state = proptest::option::of(proptest::sample::select(vec![
        StateOperation::Reset,
        StateOperation::Resync,
    ]));
    let body = prop_oneof![
        1 => Just((Vec::new(), Vec::new())),
        4 => (generate::keyword(), generate::data()),
    ];
    (
        routing,
        prop::collection::vec(entity, 0..3),
        state,
        body,
        length,
    )
        .prop_map(
            |(routing, entity, state, (method, data), length)| Description {
                routing,
                entity,
                state,
                method,
                data,
                raw: None,
                length,
            },
        )
}

proptest! {
    #![proptest_config(crate::generate::cases(64))]

    #[test]
    fn rendered_packets_parse_to_their_description(
        description in description(),
        threshold in prop_oneof![Just(9u64), Just(0), Just(3), Just(u64::MAX)],
    ) {
        let bytes = render(Renderer::with_threshold(threshold), &description).expect("rendered");
        let parsed = feed(Mode::Full, Limits::DEFAULT, std::iter::once(&bytes[..]));
        prop_assert_eq!(parsed.error, None);
        prop_assert!(parsed.clean);
        let mut expected = Vec::new();
        for (operator, name, value) in &description.routing {
            expected.push(Joined::Routing(operator.byte(), name.clone(), value.clone()));
        }
        match description.state {
            Some(StateOperation::Reset) => expected.push(Joined::Reset),
            Some(StateOperation::Resync) => expected.push(Joined::Resync),
            None => {}
        }
        for (operator, name, value, _) in &description.entity {
            expected.push(Joined::Entity(operator.byte(), name.clone(), value.clone(), false));
        }
        if !description.method.is_empty() {
            expected.push(Joined::Body(description.method.clone(), description.data.clone(), false));
        }
        expected.push(Joined::Complete);
        let plain: Vec<Joined> = parsed.events.into_iter().map(|event| match event {
            Joined::Entity(operator, name, value, _) => Joined::Entity(operator, name, value, false),
            Joined::Body(method, data, _) => Joined::Body(method, data, false),
            event => event,
        }).collect();
        prop_assert_eq!(plain, expected);
        // Rendering the parsed packet gives the same bytes.
        prop_assert_eq!(rerender(&bytes), bytes);
    }

    #[test]
    fn a_parsed_packet_renders_to_equal_events(input in generate::stream()) {
        let mut parser = Parser::new(Mode::Full);
        let mut start = 0;
        loop {
            match parser.step(&input) {
                ParseStep::NeedMore(_) | ParseStep::Error(_) => break,
                ParseStep::Complete => {
                    let packet = &input[start..parser.consumed()];
                    start = parser.consumed();
                    let again = rerender(packet);
                    let strip = |outcome: crate::feed::Outcome| outcome.events;
                    let before = strip(feed(Mode::Full, Limits::DEFAULT, std::iter::once(packet)));
                    let after = strip(feed(Mode::Full, Limits::DEFAULT, std::iter::once(&again[..])));
                    let plain = |events: Vec<Joined>| -> Vec<Joined> {
                        events.into_iter().map(|event| match event {
                            // No empty item is written with a length.
                            Joined::Entity(operator, name, value, sized) => {
                                let sized = sized && !value.is_empty();
                                Joined::Entity(operator, name, value, sized)
                            }
                            event => event,
                        }).collect()
                    };
                    prop_assert_eq!(plain(after), plain(before));
                    // The first rendering removed all optional bytes, so a second one changes
                    // nothing.
                    prop_assert_eq!(rerender(&again), again);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn contents_pass_a_relay_unchanged(input in generate::content()) {
        if input.is_empty() {
            return Ok(());
        }
        let bytes = render(Renderer::new(), &Description { raw: Some(input.clone()), ..Description::default() });
        let relayed = feed(Mode::RoutingOnly, Limits::DEFAULT, std::iter::once(&bytes.expect("rendered")[..]));
        prop_assert_eq!(relayed.error, None);
        prop_assert!(matches!(&relayed.events[..], [Joined::Content(data, _), Joined::Complete] if *data == input));
    }

    #[test]
    fn lists_round_trip(
        ty in proptest::option::of(generate::keyword()),
        items in prop::collection::vec((proptest::option::of(generate::keyword()), generate::data()), 0..5),
        threshold in prop_oneof![Just(9u64), Just(0), Just(u64::MAX)],
    ) {
        let list: Vec<Item<'_>> = items.iter()
            .map(|(ty, value)| Item { ty: ty.as_deref(), value, length: Length::Auto }).collect();
        let mut out = Vec::new();
        Renderer::with_threshold(threshold).append_list(ty.as_deref(), &list, &mut out).expect("rendered");
        let mut seen_type = None;
        let mut seen = Vec::new();
        for event in List::new(&out) {
            match event.expect("a list") {
                ListEvent::Type(ty) => seen_type = Some(ty.to_vec()),
                ListEvent::Elem(element) => {
                    seen.push((element.ty.map(<[u8]>::to_vec), element.value.to_vec()));
                }
            }
        }
        prop_assert_eq!((seen_type, seen), (ty, items));
    }

    #[test]
    fn dicts_round_trip(
        ty in proptest::option::of(generate::keyword()),
        items in prop::collection::vec((generate::data(), proptest::option::of(generate::keyword()), generate::container()), 0..5),
    ) {
        let entries: Vec<Entry<'_>> = items.iter()
            .map(|(key, ty, value)| Entry::new(key, Item { ty: ty.as_deref(), value, length: Length::Auto }))
            .collect();
        let mut out = Vec::new();
        Renderer::new().append_dict(ty.as_deref(), &entries, &mut out).expect("rendered");
        let mut seen_type = None;
        let mut seen = Vec::new();
        let mut key = Vec::new();
        for event in Dict::new(&out) {
            match event.expect("a dict") {
                DictEvent::Type(ty) => seen_type = Some(ty.to_vec()),
                DictEvent::Key(found) => key = found.key.to_vec(),
                DictEvent::Value(value) => {
                    seen.push((key.clone(), value.ty.map(<[u8]>::to_vec), value.value.to_vec()));
                }
            }
        }
        prop_assert_eq!((seen_type, seen), (ty, items));
    }

    #[test]
    fn updates_round_trip(
        position in any::<u64>(),
        name in generate::keyword(),
        key in generate::data(),
        operator in operator(),
        ty in proptest::option::of(generate::keyword()),
        value in generate::data(),
    ) {
        let index = [Step::Pos(position), Step::Key(&key, Length::Auto), Step::Field(&name)];
        let item = Item { ty: ty.as_deref(), value: &value, length: Length::Auto };
        let mut out = Vec::new();
        Renderer::new().append_update(&index, operator, &item, &mut out).expect("rendered");
        let mut steps = 0;
        let mut seen = Vec::new();
        for event in Update::new(&out) {
            match event.expect("an update") {
                UpdateEvent::Step(_) => steps += 1,
                UpdateEvent::Op { operator: found, ty: found_type } => {
                    prop_assert_eq!((found, found_type), (operator, ty.as_deref()));
                }
                UpdateEvent::Value { value, .. } => seen = value.to_vec(),
            }
        }
        prop_assert_eq!((steps, seen), (3, value));
    }
}

#[test]
fn unescape_decodes_hexadecimal() {
    assert_eq!(unescape(b"a\\x0ab"), Some(b"a\nb".to_vec()));
}
