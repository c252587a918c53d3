//! The head of a request: its method, target and header fields.
//!
//! HTTP/1.1 and HTTP/2 share one form. The HTTP/1.1 rules are stricter than those of most servers
//! (docs/api/http.md, "Strictness"): input that two parsers could interpret differently is refused.

use std::ops::Range;

use crate::limits::HEAD_LINES_BLANK_MAX;

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
    Other,
}

impl Method {
    pub(crate) fn read(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            _ => Self::Other,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Other => "OTHER",
        }
    }

    /// Whether the method changes state.
    pub(crate) const fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::Head | Self::Options)
    }
}

/// The protocol version of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    H10,
    H11,
    H2,
}

macro_rules! field_names {
    ($($name:ident = $text:literal;)*) => {
        /// Names of the header fields that the server reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum FieldName { $($name,)* }

        impl FieldName {
            const COUNT: usize = [$($text,)*].len();

            /// Name in lower case.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Finds a field by its lower-case name.
            fn read(name: &[u8]) -> Option<Self> {
                const { assert!(Self::COUNT <= 64) };
                // A name in upper case would never match.
                Some(match std::str::from_utf8(name).ok()? {
                    $($text => Self::$name,)*
                    _ => return None,
                })
            }
        }
    };
}

field_names! {
    Accept = "accept";
    AcceptEncoding = "accept-encoding";
    Authorization = "authorization";
    CeDataContentType = "ce-datacontenttype";
    CeId = "ce-id";
    CeSource = "ce-source";
    CeSpecVersion = "ce-specversion";
    CeType = "ce-type";
    Connection = "connection";
    ContentEncoding = "content-encoding";
    ContentLength = "content-length";
    ContentType = "content-type";
    Expect = "expect";
    Host = "host";
    IdempotencyKey = "idempotency-key";
    IfMatch = "if-match";
    IfNoneMatch = "if-none-match";
    IfRange = "if-range";
    LastEventId = "last-event-id";
    Origin = "origin";
    Prefer = "prefer";
    ProducerEpoch = "producer-epoch";
    ProducerId = "producer-id";
    ProducerSeq = "producer-seq";
    Range = "range";
    RequestHeaders = "access-control-request-headers";
    RequestMethod = "access-control-request-method";
    StreamClosed = "stream-closed";
    StreamExpiresAt = "stream-expires-at";
    StreamForkOffset = "stream-fork-offset";
    StreamForkSubOffset = "stream-fork-sub-offset";
    StreamForkedFrom = "stream-forked-from";
    StreamSeq = "stream-seq";
    StreamTtl = "stream-ttl";
    Traceparent = "traceparent";
    TransferEncoding = "transfer-encoding";
    WeirClient = "weir-client";
    WeirExpect = "weir-expect";
    WeirKey = "weir-key";
    WeirKeyB64 = "weir-key-b64";
    WeirNonce = "weir-nonce";
}

type Span = Range<u32>;

fn slice<'a>(text: &'a [u8], span: &Span) -> &'a [u8] {
    text.get(span.start as usize..span.end as usize)
        .unwrap_or_default()
}

/// A request without its body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) version: Version,
    /// The names (in lower case) and values of all fields, the path, and the query.
    text: Vec<u8>,
    fields: Vec<(Span, Span)>,
    path: Span,
    query: Option<Span>,
    host: Option<Span>,
    /// For each known name, the index of its first field, counted from 1; 0: absent.
    first: [u16; FieldName::COUNT],
    /// Known names that occur more than once, one bit each.
    repeated: u64,
}

/// How the body of an HTTP/1.1 request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A body of this many bytes.
    Length(u64),
    /// A chunked body.
    Chunked,
}

/// Why a head is refused. The connection closes afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// 400, with the reason.
    Syntax(&'static str),
    /// 414.
    Target,
    /// 431.
    Fields,
    /// 501: an unknown transfer coding.
    Coding,
    /// 505.
    Version,
}

/// A head, and what the connection needs from it.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) head: Head,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) expects: bool,
}

/// How far a head was scanned, so that each byte is scanned once, even if a head arrives byte by
/// byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    seen: usize,
    line: usize,
    begun: bool,
    blank: usize,
    /// Where the fields start, after the request line has arrived.
    fields: Option<usize>,
}

/// Size limits of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    pub(crate) line_max: usize,
    pub(crate) head_max: usize,
}

impl Scan {
    /// Finds the end of the head. Returns its length including the blank line, or `None` if the
    /// head is not complete.
    ///
    /// Refuses a bad head at its first bad byte, independent of how the bytes are split.
    pub(crate) fn end(
        &mut self,
        input: &[u8],
        limits: HeadLimits,
    ) -> Result<Option<usize>, HeadError> {
        loop {
            let rest = input.get(self.seen..).unwrap_or_default();
            let found = rest.iter().position(|byte| *byte == b'\n');
            let end = found.map_or(input.len(), |at| self.seen + at);
            let line = input.get(self.line..end).unwrap_or_default();
            // A CR at the end may be part of the line or of the line end.
            let content = line.strip_suffix(b"\r");
            if !self.begun && content.unwrap_or(line).len() > limits.line_max {
                return Err(HeadError::Target);
            }
            self.seen = end + usize::from(found.is_some());
            if self
                .fields
                .is_some_and(|at| self.seen - at > limits.head_max)
            {
                return Err(HeadError::Fields);
            }
            if found.is_none() {
                return Ok(None);
            }
            let Some(content) = content else {
                return Err(HeadError::Syntax("a line ends with LF alone"));
            };
            self.line = self.seen;
            match (content.is_empty(), self.begun) {
                (true, true) => return Ok(Some(self.seen)),
                (true, false) => {
                    // Some clients send an extra blank line after a body.
                    self.blank += 1;
                    if self.blank > HEAD_LINES_BLANK_MAX {
                        return Err(HeadError::Syntax("blank lines before the request"));
                    }
                }
                (false, _) => {
                    self.begun = true;
                    self.fields.get_or_insert(self.seen);
                }
            }
        }
    }

    /// Whether the input contains any byte of a request.
    pub(crate) fn has_begun(&self, input: &[u8]) -> bool {
        self.begun || input.len() > self.line
    }
}

/// Parses a whole HTTP/1 head.
pub(crate) fn parse(input: &[u8], fields_max: usize) -> Result<Parsed, HeadError> {
    let mut slots = vec![httparse::EMPTY_HEADER; fields_max];
    let mut request = httparse::Request::new(&mut slots);
    match request.parse(input) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(HeadError::Syntax("the head is not complete")),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::Fields),
        Err(httparse::Error::Version) => {
            let line = input
                .split(|byte| *byte == b'\r')
                .find(|line| !line.is_empty());
            let word = line.and_then(|line| line.rsplit(|byte| *byte == b' ').next());
            let known = word.is_some_and(|word| matches!(word, [b'H', b'T', b'T', b'P', b'/', rest @ ..] if is_version(rest)));
            return Err(if known {
                HeadError::Version
            } else {
                HeadError::Syntax("the version")
            });
        }
        Err(error) => {
            return Err(HeadError::Syntax(match error {
                httparse::Error::HeaderName => "the name of a header field",
                httparse::Error::HeaderValue => "the value of a header field",
                httparse::Error::NewLine => "the end of a line",
                _ => "the request line",
            }));
        }
    }
    let version = match request.version {
        Some(0) => Version::H10,
        _ => Version::H11,
    };
    let method = Method::read(request.method.unwrap_or_default());
    let mut builder = Builder::new(method, version, input.len());
    builder.target(request.path.unwrap_or_default())?;
    for field in request.headers.iter() {
        builder.field(field.name, field.value);
    }
    let head = builder.head;
    let framing = framing(&head)?;
    let (mut close, mut keep) = (false, false);
    for token in head.list(FieldName::Connection) {
        close |= token.eq_ignore_ascii_case("close");
        keep |= token.eq_ignore_ascii_case("keep-alive");
    }
    if !head.has(FieldName::Host) {
        return Err(HeadError::Syntax("the field Host is missing"));
    }
    if head.is_repeated(FieldName::Host) {
        return Err(HeadError::Syntax("more than one Host"));
    }
    if !head.has_one_host() {
        return Err(HeadError::Syntax(
            "the target and Host name different hosts",
        ));
    }
    let expects = head
        .raw(FieldName::Expect)
        .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
    Ok(Parsed {
        keep_alive: match version {
            Version::H10 => keep && !close,
            _ => !close,
        },
        expects: expects && version == Version::H11,
        framing,
        head,
    })
}

fn is_version(text: &[u8]) -> bool {
    matches!(text, [a] if a.is_ascii_digit())
        || matches!(text, [a, b'.', b] if a.is_ascii_digit() && b.is_ascii_digit())
}

fn framing(head: &Head) -> Result<Framing, HeadError> {
    let length = head.raw(FieldName::ContentLength);
    let Some(coding) = head.raw(FieldName::TransferEncoding) else {
        let Some(length) = length else {
            return Ok(Framing::Length(0));
        };
        if head.is_repeated(FieldName::ContentLength) {
            return Err(HeadError::Syntax("more than one Content-Length"));
        }
        let digits =
            !length.is_empty() && length.len() < 20 && length.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(length).ok().filter(|_| digits);
        let number = number.and_then(|text| text.parse().ok());
        return number
            .map(Framing::Length)
            .ok_or(HeadError::Syntax("Content-Length is not a number"));
    };
    if length.is_some() {
        return Err(HeadError::Syntax(
            "Content-Length together with Transfer-Encoding",
        ));
    }
    if head.version == Version::H10 {
        return Err(HeadError::Syntax("Transfer-Encoding in HTTP/1.0"));
    }
    if head.is_repeated(FieldName::TransferEncoding) || !coding.eq_ignore_ascii_case(b"chunked") {
        return Err(HeadError::Coding);
    }
    Ok(Framing::Chunked)
}

/// Builds a head.
pub(crate) struct Builder {
    head: Head,
}

impl Builder {
    pub(crate) fn new(method: Method, version: Version, bytes: usize) -> Self {
        Self {
            head: Head {
                method,
                version,
                text: Vec::with_capacity(bytes),
                fields: Vec::with_capacity(16),
                path: 0..0,
                query: None,
                host: None,
                first: [0; FieldName::COUNT],
                repeated: 0,
            },
        }
    }

    fn push(&mut self, text: &[u8]) -> Span {
        let length = |text: &Vec<u8>| u32::try_from(text.len()).unwrap_or(u32::MAX);
        let start = length(&self.head.text);
        self.head.text.extend_from_slice(text);
        start..length(&self.head.text)
    }

    /// Parses the target: a path with or without a query, optionally after an origin.
    pub(crate) fn target(&mut self, target: &str) -> Result<(), HeadError> {
        let mut rest = target;
        if let Some((scheme, after)) = target.split_once("://")
            && matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https")
        {
            let at = after.find(['/', '?']).unwrap_or(after.len());
            let (host, path) = after.split_at(at);
            self.host(host);
            rest = path;
        } else if !target.starts_with('/') && target != "*" {
            // A CONNECT request is refused later, because of its method. Other methods need a path.
            if self.head.method != Method::Other {
                return Err(HeadError::Syntax("the target of the request"));
            }
        }
        if rest.contains('#') {
            return Err(HeadError::Syntax("a fragment in the target"));
        }
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        self.head.path = self.push(if path.is_empty() {
            b"/"
        } else {
            path.as_bytes()
        });
        self.head.query = query.map(|query| self.push(query.as_bytes()));
        Ok(())
    }

    /// Sets the authority of the target, which overrides the field `Host`.
    pub(crate) fn host(&mut self, host: &str) {
        self.head.host = Some(self.push(host.as_bytes()));
    }

    pub(crate) fn field(&mut self, name: &str, value: &[u8]) {
        let span = self.push(name.as_bytes());
        if let Some(name) = self.head.text.get_mut(span.start as usize..) {
            name.make_ascii_lowercase();
        }
        let known = FieldName::read(slice(&self.head.text, &span));
        let value = self.push(value.trim_ascii());
        self.head.fields.push((span, value));
        if let Some(known) = known {
            // The size limit of a head keeps the number of fields far below this.
            let number = u16::try_from(self.head.fields.len()).unwrap_or(u16::MAX);
            match self.head.first.get_mut(known as usize) {
                Some(first @ 0) => *first = number,
                _ => self.head.repeated |= 1 << known as u8,
            }
        }
    }

    pub(crate) fn build(self) -> Head {
        self.head
    }
}

impl Head {
    /// The path, still percent-encoded.
    pub(crate) fn path(&self) -> &str {
        std::str::from_utf8(slice(&self.text, &self.path)).unwrap_or_default()
    }

    /// The query after the question mark, still percent-encoded.
    pub(crate) fn query(&self) -> Option<&str> {
        let query = self.query.as_ref()?;
        std::str::from_utf8(slice(&self.text, query)).ok()
    }

    /// Whether the target and the field `Host` name the same host, if both are present.
    pub(crate) fn has_one_host(&self) -> bool {
        match (&self.host, self.raw(FieldName::Host)) {
            (Some(span), Some(host)) => slice(&self.text, span).eq_ignore_ascii_case(host),
            _ => true,
        }
    }

    /// Host and port that the client addressed.
    pub(crate) fn host(&self) -> Option<&[u8]> {
        match &self.host {
            Some(span) => Some(slice(&self.text, span)),
            None => self.raw(FieldName::Host),
        }
    }

    /// The value of the first field with this name, without surrounding white space.
    pub(crate) fn raw(&self, known: FieldName) -> Option<&[u8]> {
        let at = self.first.get(known as usize).copied()?.checked_sub(1)?;
        let (_, value) = self.fields.get(usize::from(at))?;
        Some(slice(&self.text, value))
    }

    /// As `raw`, but as text; also `None` for bytes that are not UTF-8.
    pub(crate) fn text(&self, known: FieldName) -> Option<&str> {
        std::str::from_utf8(self.raw(known)?).ok()
    }

    /// Whether the field is present.
    pub(crate) fn has(&self, known: FieldName) -> bool {
        self.raw(known).is_some()
    }

    pub(crate) fn is_repeated(&self, known: FieldName) -> bool {
        self.repeated & (1 << known as u8) != 0
    }

    /// The elements of a list, from all fields with this name.
    pub(crate) fn list(&self, known: FieldName) -> impl Iterator<Item = &str> {
        let from = self
            .first
            .get(known as usize)
            .map_or(0, |first| usize::from(*first));
        let fields = if from == 0 {
            &[]
        } else {
            self.fields.get(from - 1..).unwrap_or_default()
        };
        let name = known.name().as_bytes();
        let values = fields
            .iter()
            .filter(move |(field, _)| slice(&self.text, field) == name);
        let texts =
            values.filter_map(|(_, value)| std::str::from_utf8(slice(&self.text, value)).ok());
        texts
            .flat_map(|text| text.split(','))
            .map(str::trim)
            .filter(|element| !element.is_empty())
    }

    /// All fields in order: lower-case names and values.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(name, value)| {
            let name = std::str::from_utf8(slice(&self.text, name)).unwrap_or_default();
            (name, slice(&self.text, value))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        line_max: 100,
        head_max: 400,
    };

    #[test]
    fn a_field_after_many_others_is_found() {
        let many = "x: decoy\r\n".repeat(300);
        let text = format!("GET / HTTP/1.1\r\n{many}Host: a\r\nAuthorization: b\r\n\r\n");
        let head = parse(text.as_bytes(), 400).unwrap().head;
        assert_eq!(head.raw(FieldName::Authorization), Some(&b"b"[..]));
        assert_eq!(head.host(), Some(&b"a"[..]));
    }

    fn read(text: &str) -> Result<Option<Parsed>, HeadError> {
        let mut whole = Scan::default();
        let end = whole.end(text.as_bytes(), LIMITS);
        // Parse the head again, byte by byte.
        let mut scan = Scan::default();
        let mut pieces = Ok(None);
        for n in 1..=text.len() {
            pieces = scan.end(&text.as_bytes()[..n], LIMITS);
            if pieces != Ok(None) {
                break;
            }
        }
        assert_eq!(end, pieces, "{text:?}");
        match end? {
            Some(end) => parse(&text.as_bytes()[..end], 5).map(Some),
            None => Ok(None),
        }
    }

    #[test]
    fn a_head_is_parsed() {
        let parsed = read(
            "\r\nPOST /a/b?c=d HTTP/1.1\r\nHOST: x\r\nAccept: a, b\r\naccept:c\r\nContent-Length: 3\r\n\r\nabc",
        );
        let parsed = parsed.unwrap().unwrap();
        let head = &parsed.head;
        assert_eq!(
            (head.method, head.path(), head.query()),
            (Method::Post, "/a/b", Some("c=d"))
        );
        assert_eq!(head.host(), Some(&b"x"[..]));
        assert_eq!(
            head.list(FieldName::Accept).collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
        assert_eq!(parsed.framing, Framing::Length(3));
        assert!(parsed.keep_alive);
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        let bad = |text: &str, want: HeadError| {
            let got = read(&format!("{text}\r\n\r\n")).map(|parsed| parsed.is_some());
            match (got, want) {
                (Err(HeadError::Syntax(_)), HeadError::Syntax(_)) => {}
                (got, want) => assert_eq!(got, Err(want), "{text:?}"),
            }
        };
        let syntax = HeadError::Syntax("");
        bad("GET / HTTP/1.1", syntax);
        bad("GET / HTTP/1.1\r\nHost: a\r\nHost: a", syntax);
        bad("GET / HTTP/1.1\nHost: a", syntax);
        bad(
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
            syntax,
        );
        bad(
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3",
            syntax,
        );
        bad("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +3", syntax);
        bad("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3", syntax);
        bad(
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999",
            syntax,
        );
        bad("GET / HTTP/1.0\r\nTransfer-Encoding: chunked", syntax);
        bad(
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked",
            HeadError::Coding,
        );
        bad("GET / HTTP/1.1\r\nHost : a", syntax);
        bad("GET / HTTP/1.1\r\nHost: a\r\n b", syntax);
        bad("GET / HTTP/1.1\r\nHost: a\0", syntax);
        bad("GET / HTTP/3.0\r\nHost: a", HeadError::Version);
        bad("GET / HTTX/3.0\r\nHost: a", syntax);
        bad("GET x HTTP/1.1\r\nHost: a", syntax);
        bad("GET /#a HTTP/1.1\r\nHost: a", syntax);
        bad(
            "GET / HTTP/1.1\r\nHost: a\r\nb:c\r\nb:c\r\nb:c\r\nb:c\r\nb:c",
            HeadError::Fields,
        );
        bad(
            &format!("GET /{} HTTP/1.1\r\nHost: a", "x".repeat(100)),
            HeadError::Target,
        );
        bad(
            &format!("GET / HTTP/1.1\r\nHost: a\r\nb: {}", "x".repeat(500)),
            HeadError::Fields,
        );
        bad("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a", syntax);
    }

    #[test]
    fn an_absolute_target_must_name_the_host_of_the_field() {
        let parsed = read("GET http://b:1?x HTTP/1.1\r\nHost: B:1\r\nConnection: x, Close\r\n\r\n")
            .unwrap()
            .unwrap();
        assert_eq!(parsed.head.host(), Some(&b"b:1"[..]));
        assert_eq!((parsed.head.path(), parsed.head.query()), ("/", Some("x")));
        assert!(!parsed.keep_alive);
    }
}
