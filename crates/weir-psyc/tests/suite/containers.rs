//! Lists, dicts, indexes and updates: the vectors, and properties of all values.

use crate::{generate, vectors};
use proptest::prelude::*;
use weir_psyc::{
    CompactTable, ContainerError, Dict, Element, Fields, Index, List, ListPrinter, ListStep,
    ListStream, Place, StructError, Table, TableError, TableEvent, TableWalk, Update, print_dict,
    print_index, print_update,
};

fn list_in_pieces<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> String {
    let mut stream = ListStream::new();
    let mut printer = ListPrinter::new();
    let mut text = String::new();
    let mut buffer = Vec::new();
    let pieces: Vec<&[u8]> = pieces.collect();
    for (at, piece) in pieces.iter().chain(std::iter::once(&&b""[..])).enumerate() {
        buffer.extend_from_slice(piece);
        loop {
            let step = stream.step(&buffer, at == pieces.len());
            printer.print(&step, &mut text).unwrap();
            match step {
                ListStep::NeedMore => break,
                ListStep::End | ListStep::Error(_) => return text,
                ListStep::ElemCont(part) | ListStep::ElemEnd(part) => assert!(!part.is_empty()),
                _ => {}
            }
        }
        buffer.drain(..stream.release());
        // A stream that is resumed from its place must behave like the original stream.
        stream = ListStream::resume(stream.place().expect("no error"));
    }
    panic!("a complete list neither ends nor fails: {text}");
}

fn run(file: &str, print: impl Fn(&[u8]) -> String) {
    let cases = vectors::read(file, &["in"]);
    for case in &cases {
        let input = case.bytes("in").expect("input");
        case.check(&print(&input), "whole");
    }
    println!("{file}: {} cases", cases.len());
}

#[test]
fn list_vectors_hold_for_every_cut() {
    run("lists.txt", |input| {
        let whole = list_in_pieces(std::iter::once(input));
        assert_eq!(list_in_pieces(input.chunks(1)), whole);
        for cut in (0..=input.len()).step_by(if cfg!(miri) { 13 } else { 1 }) {
            let (front, after) = input.split_at(cut);
            assert_eq!(list_in_pieces([front, after].into_iter()), whole);
        }
        whole
    });
}

#[test]
fn dict_index_and_update_vectors_hold() {
    type Print = fn(&[u8], &mut dyn std::fmt::Write) -> Result<bool, std::fmt::Error>;
    let files: [(&str, Print); 3] = [
        ("dicts.txt", print_dict),
        ("indexes.txt", print_index),
        ("updates.txt", print_update),
    ];
    for (file, print) in files {
        run(file, |input| {
            let mut text = String::new();
            let good = print(input, &mut text).unwrap();
            assert_eq!(good, text.lines().last() == Some("end"));
            text
        });
    }
}

fn element(kind: &str, element: Element<'_>) -> String {
    let ty = element.ty.unwrap_or_default().escape_ascii();
    format!("{kind}\t{ty}\t{}\n", element.value.escape_ascii())
}

#[test]
fn struct_vectors_hold() {
    let cases = vectors::read("structs.txt", &["type", "in"]);
    for case in &cases {
        let (ty, input) = (case.bytes("type").unwrap(), case.bytes("in").unwrap());
        let mut text = String::new();
        for field in Fields::resume(&ty, &input, [Place::default(); 2]) {
            let line = match field {
                Ok(field) => {
                    let value = field.element.map(|value| element("value", value));
                    let name = field.name.escape_ascii();
                    format!("field\t{name}\n{}", value.unwrap_or_default())
                }
                Err(StructError::Value(error)) => format!("error\t{}\n", error.kind.name()),
                Err(StructError::Declaration(_)) => "error\tdeclaration\n".to_string(),
                Err(StructError::TooMany) => "error\ttoo-many\n".to_string(),
                Err(_) => "error\tfield\n".to_string(),
            };
            text.push_str(&line);
        }
        if !text.contains("error\t") {
            text += "end\n";
        }
        case.check(&text, "walked");
    }
    println!("structs.txt: {} cases", cases.len());
}

#[test]
fn table_vectors_hold() {
    let cases = vectors::read("tables.txt", &["in"]);
    for case in &cases {
        let input = case.bytes("in").unwrap();
        let mut text = String::new();
        for event in TableWalk::new(&input) {
            let line = match event {
                Ok(TableEvent::Row { key, ty }) => {
                    let ty = ty.unwrap_or_default().escape_ascii();
                    format!("row\t{}\t{ty}\n", key.key.escape_ascii())
                }
                Ok(TableEvent::Column(column)) => element("column", column),
                Err(TableError::Dict(error) | TableError::Row(error)) => {
                    format!("error\t{}\n", error.kind.name())
                }
                Err(TableError::NotAStruct) => "error\tnot-a-struct\n".to_string(),
                Err(TableError::Width) => "error\twidth\n".to_string(),
                Err(_) => "error\tcells\n".to_string(),
            };
            text.push_str(&line);
        }
        if !text.contains("error\t") {
            text += "end\n";
        }
        case.check(&text, "walked");
    }
    println!("tables.txt: {} cases", cases.len());
}

#[test]
fn compact_vectors_hold() {
    let cases = vectors::read("compact.txt", &["entry", "expand", "contract"]);
    for case in &cases {
        let entries = case.all("entry").into_iter();
        let entries: Vec<_> = entries.map(|row| String::from_utf8(row).unwrap()).collect();
        let entries = entries.iter().map(|row| row.split_once(' ').unwrap());
        let entries: Vec<_> = entries.collect();
        let table = CompactTable::new(&entries);
        let name = match (case.setting("expand"), case.setting("contract")) {
            (Some(word), _) => table.expand(word.as_bytes()),
            (_, Some(word)) => table.contract(word.as_bytes()),
            _ => panic!("a word"),
        };
        case.check(&format!("name\t{}\n", name.escape_ascii()), "looked up");
    }
    println!("compact.txt: {} cases", cases.len());
}

/// Keys of rows, with the values of their columns.
type Rows<'a> = Vec<(&'a [u8], Vec<&'a [u8]>)>;

/// The rows of the table in `input`, as the walker reads them. `None` if a row or a column fails.
fn rows(input: &[u8]) -> Option<Rows<'_>> {
    let mut rows = Vec::new();
    for event in TableWalk::new(input) {
        match event.ok()? {
            TableEvent::Row { key, .. } => rows.push((key.key, Vec::new())),
            TableEvent::Column(column) => rows.last_mut()?.1.push(column.value),
        }
    }
    Some(rows)
}

/// A case of `any_place_is_safe` that once consumed one byte more than the input has.
#[test]
fn a_place_of_another_list_consumes_only_input_bytes() {
    let input = b"|=_t:2 ||";
    let place = Place {
        state: 1,
        scanned: [0, 36, u64::MAX],
        ..Place::default()
    };
    let mut stream = ListStream::resume(place);
    for _ in 0..input.len() + 2 {
        stream.step(input, true);
        assert!(stream.consumed() <= input.len());
    }
}

proptest! {
    #![proptest_config(crate::generate::cases(64))]

    #[test]
    fn list_events_do_not_depend_on_the_pieces(
        input in generate::container(),
        cuts in prop::collection::vec(0usize..12, 0..6),
    ) {
        let whole = list_in_pieces(std::iter::once(&input[..]));
        prop_assert_eq!(&list_in_pieces(input.chunks(1)), &whole);
        let mut pieces = Vec::new();
        let mut rest = &input[..];
        for cut in cuts {
            let (front, after) = rest.split_at(cut % (rest.len() + 1));
            pieces.push(front);
            rest = after;
        }
        pieces.push(rest);
        prop_assert_eq!(&list_in_pieces(pieces.into_iter()), &whole);
    }

    #[test]
    fn walkers_resume_from_their_place(input in generate::container()) {
        let whole: Vec<_> = Dict::new(&input).collect();
        let mut place = Place::default();
        let resumed: Vec<_> = std::iter::from_fn(|| {
            let mut dict = Dict::resume(&input, place);
            let event = dict.next();
            place = dict.place();
            event
        }).collect();
        prop_assert_eq!(resumed, whole);
        let whole: Vec<_> = Index::new(&input).collect();
        let mut place = Place::default();
        let resumed: Vec<_> = std::iter::from_fn(|| {
            let mut index = Index::resume(&input, place);
            let step = index.next();
            place = index.place();
            step
        }).collect();
        prop_assert_eq!(resumed, whole);
        let whole: Vec<_> = Update::new(&input).collect();
        let mut place = Place::default();
        let resumed: Vec<_> = std::iter::from_fn(|| {
            let mut update = Update::resume(&input, place);
            let event = update.next();
            place = update.place();
            event
        }).collect();
        prop_assert_eq!(resumed, whole);
        let whole: Vec<_> = TableWalk::new(&input).collect();
        let mut place = Place::default();
        let resumed: Vec<_> = std::iter::from_fn(|| {
            let mut table = TableWalk::resume(&input, place);
            let event = table.next();
            place = table.place();
            event
        }).take(whole.len()).collect();
        prop_assert_eq!(resumed, whole);
        let declaration = b"|=_a|=_b";
        let whole: Vec<_> = Fields::resume(declaration, &input, [Place::default(); 2]).collect();
        let mut places = [Place::default(); 2];
        let resumed: Vec<_> = std::iter::from_fn(|| {
            let mut fields = Fields::resume(declaration, &input, places);
            let field = fields.next();
            places = fields.places();
            field
        }).take(whole.len()).collect();
        prop_assert_eq!(resumed, whole);
    }

    #[test]
    fn table_walk_yields_the_rows_of_the_table(tail in generate::container()) {
        for front in [&b""[..], b"_struct", b"*1 ", b"*0"] {
            let input = [front, &tail].concat();
            let table = match front.first() {
                Some(b'*') => Table::from_width_list(&input).ok(),
                _ => Some(Table::from_dict(&input)),
            };
            let expected: Option<Vec<_>> = table.and_then(|table| table.rows().map(|row| {
                let row = row.ok()?;
                let columns: Result<Vec<_>, _> = row.columns().collect();
                Some((row.key, columns.ok()?))
            }).collect());
            if front.is_empty() && input.starts_with(b"*") {
                continue;
            }
            prop_assert_eq!(rows(&input), expected);
        }
    }

    #[test]
    fn any_place_is_safe(
        input in generate::container(),
        at in any::<u64>(),
        state in 0u64..5,
        missing in any::<u64>(),
        scanned in any::<[u64; 3]>(),
        complete in any::<bool>(),
    ) {
        let place = Place { at, state, missing, scanned };
        let mut stream = ListStream::resume(place);
        for _ in 0..input.len() + 2 {
            stream.step(&input, complete);
            prop_assert!(stream.consumed() <= input.len());
        }
        let near = Place { at: at % (input.len() as u64 + 2), ..place };
        for place in [place, near] {
            walk(Dict::resume(&input, place), input.len() + 2);
            walk(Index::resume(&input, place), input.len() + 2);
            walk(Update::resume(&input, place), input.len() + 2);
            let tables = TableWalk::resume(&input, place).map(without_offset);
            walk(tables, input.len() + 2);
            let fields = Fields::resume(&input, &input, [place, near]);
            walk(fields.map(without_offset), input.len() + 2);
        }
    }

    #[test]
    fn walkers_end_and_report_offsets_inside_the_input(input in generate::container()) {
        // No walk has more steps than bytes plus its end, and every error is inside or at the end.
        let bound = input.len() + 2;
        let places = [
            walk(List::new(&input), bound),
            walk(Dict::new(&input), bound),
            walk(Index::new(&input), bound),
            walk(Update::new(&input), bound),
        ];
        for place in places.into_iter().flatten() {
            prop_assert!(place <= input.len() as u64, "error at {} of {}", place, input.len());
        }
    }
}

/// The error as a container error. Other tests check its position.
fn without_offset<T, E>(event: Result<T, E>) -> Result<T, ContainerError> {
    let kind = weir_psyc::ContainerErrorKind::Short;
    event.map_err(|_| ContainerError { kind, offset: 0 })
}

fn walk<T>(
    mut events: impl Iterator<Item = Result<T, weir_psyc::ContainerError>>,
    bound: usize,
) -> Option<u64> {
    for _ in 0..=2 * bound {
        match events.next() {
            None => return None,
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                assert!(events.next().is_none(), "continues after an error");
                return Some(error.offset);
            }
        }
    }
    panic!("the walker does not end");
}
