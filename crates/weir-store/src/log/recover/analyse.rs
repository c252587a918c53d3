//! Reads the whole log and determines its end and its entries (`docs/formats/log.md`, sections 7.2
//! and 7.3). Changes nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use super::files::{Files, SegmentFile};
use crate::disk::{Disk, OpenMode};
use crate::error::StoreError;
use crate::log::format::{BatchHeader, FIRST_POSITION, Kind};
use crate::log::scan::{
    Evidence, Probe, Window, collect_headers, lacks_a_sector, probe, unsupported,
};
use crate::log::sectors::SECTOR_BYTES;
use crate::log::view::{SegmentView, View};

/// Bytes after the end of the log, which are not a part of the log.
#[derive(Clone, Debug)]
pub(crate) struct CutRange {
    /// Number of the segment among the valid segments.
    pub(crate) segment: usize,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A batch that is not proven durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnprovenBatch {
    pub(crate) segment: usize,
    pub(crate) header: BatchHeader,
}

/// The result of reading the log.
#[derive(Debug)]
pub(crate) struct Analysis {
    pub(crate) view: View,
    /// Offset after the last valid batch of each segment.
    pub(crate) ends: Vec<u64>,
    pub(crate) sequence: u64,
    pub(crate) last_term: u64,
    pub(crate) epoch: u64,
    /// Highest epoch found, including cut batches.
    pub(crate) epoch_seen: u64,
    pub(crate) last_kind: Option<Kind>,
    /// Highest sequence that is proven durable.
    pub(crate) proven: u64,
    /// Index and term of the log at the sequence `proven`.
    pub(crate) proven_index: u64,
    pub(crate) proven_term: u64,
    pub(crate) unproven: VecDeque<UnprovenBatch>,
    /// Whether `unproven` is collected: for a repair, but not for callers that only read.
    keeps_unproven: bool,
    /// Whether the log ends in a torn batch.
    pub(crate) torn: bool,
    pub(crate) cuts: Vec<CutRange>,
    /// Sequence of a reset record that is not in the start file yet.
    pub(crate) reset: Option<u64>,
    start_sequence: u64,
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
}

impl Analysis {
    /// Whether a repair segment must be created before the log can be served.
    pub(crate) fn needs_repair(&self) -> bool {
        self.torn
            || self
                .unproven
                .iter()
                .any(|batch| batch.header.kind.changes_entries())
    }

    /// Reads all segments, for a repair.
    pub(crate) fn of(disk: &dyn Disk, files: &Files) -> Result<Self, StoreError> {
        Self::read(disk, files, true)
    }

    /// Like `of`, for a reader. Does not collect `unproven`: at levels that do not wait for syncs,
    /// it would need memory in proportion to the log.
    pub(crate) fn to_read(disk: &dyn Disk, files: &Files) -> Result<Self, StoreError> {
        Self::read(disk, files, false)
    }

    /// Like `to_read`, up to the first damage. Returns the damage too.
    pub(crate) fn to_damage(
        disk: &dyn Disk,
        files: &Files,
    ) -> Result<(Self, Option<StoreError>), StoreError> {
        let Some(first) = files.segments.first() else {
            return Err(StoreError::damage("log", 0, "the log has no segment", 0));
        };
        let mut this = Self::before(files, first);
        this.keeps_unproven = false;
        let mut damage = None;
        for number in 0..files.segments.len() {
            match this.read_segment(disk, &files.segments, number) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.is_damage() => {
                    damage = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        this.finish(files)?;
        Ok((this, damage))
    }

    fn read(disk: &dyn Disk, files: &Files, keeps_unproven: bool) -> Result<Self, StoreError> {
        let Some(first) = files.segments.first() else {
            return Err(StoreError::damage("log", 0, "the log has no segment", 0));
        };
        let mut this = Self::before(files, first);
        this.keeps_unproven = keeps_unproven;
        for number in 0..files.segments.len() {
            if !this.read_segment(disk, &files.segments, number)? {
                break;
            }
        }
        this.finish(files)?;
        Ok(this)
    }

    /// The state before the first segment.
    fn before(files: &Files, first: &SegmentFile) -> Self {
        let header = &first.header;
        let last_index = header.next_index - 1;
        let mut view = View::default();
        view.last_index = last_index;
        Self {
            view,
            ends: Vec::new(),
            sequence: header.first_sequence - 1,
            last_term: header.last_term,
            epoch: header.epoch,
            epoch_seen: files.epoch_seen,
            last_kind: None,
            proven: header.first_sequence - 1,
            proven_index: last_index,
            proven_term: header.last_term,
            unproven: VecDeque::new(),
            keeps_unproven: true,
            torn: false,
            cuts: Vec::new(),
            reset: None,
            start_sequence: files.start.map_or(0, |start| start.first_sequence),
            batches: 0,
            bytes: 0,
        }
    }

    /// Reads one segment. Returns `false` if the log ends in this segment.
    fn read_segment(
        &mut self,
        disk: &dyn Disk,
        segments: &[SegmentFile],
        number: usize,
    ) -> Result<bool, StoreError> {
        let Some(segment) = segments.get(number) else {
            return Ok(false);
        };
        let after = segments.get(number + 1);
        self.enter(segment)?;
        let file = segment.open(disk, OpenMode::Read)?;
        let mut window = Window::new(&segment.path, &*file, segment.len);
        let mut position = FIRST_POSITION;
        self.ends.push(position);
        loop {
            if let Some(after) = after
                && self.sequence + 1 == after.header.first_sequence
            {
                // A normal successor follows a roll mark.
                let replaced = after.header.repair || after.header.reset;
                if !replaced && self.last_kind != Some(Kind::Roll) {
                    return Err(self.damage(segment, position, "a roll mark is missing"));
                }
                return Ok(true);
            }
            if self.last_kind == Some(Kind::Roll) && position > FIRST_POSITION {
                return Err(self.damage(segment, position, "the next segment is missing"));
            }
            let found = probe(&mut window, &segment.header, position)?;
            let Probe::Batch(header) = found else {
                return self.classify_end(disk, segments, number, &mut window, position, found);
            };
            self.check_order(segment, &header, position == FIRST_POSITION)?;
            self.accept(number, segment.header.first_sequence, &header);
            position = header.end();
            if let Some(end) = self.ends.last_mut() {
                *end = position;
            }
        }
    }

    /// Checks and records the step from one segment to the next.
    fn enter(&mut self, segment: &SegmentFile) -> Result<(), StoreError> {
        let header = &segment.header;
        if header.epoch < self.epoch {
            return Err(self.damage(segment, 64, "an epoch is lower than the previous one"));
        }
        let continues =
            header.next_index == self.view.last_index + 1 && header.last_term == self.last_term;
        if !header.reset && !continues {
            return Err(self.damage(
                segment,
                48,
                "a segment does not continue the previous segment",
            ));
        }
        self.epoch = header.epoch;
        self.epoch_seen = self.epoch_seen.max(header.epoch);
        self.raise_proven(header.durable_before);
        Ok(())
    }

    /// Checks that a valid batch is the expected next one (row 4 of the table in section 7.2).
    fn check_order(
        &self,
        segment: &SegmentFile,
        header: &BatchHeader,
        first: bool,
    ) -> Result<(), StoreError> {
        let last = self.view.last_index;
        let raised = matches!(header.kind, Kind::Open | Kind::Truncate);
        let epoch = self.epoch.saturating_add(u64::from(raised));
        let fits = match header.kind {
            Kind::Data => header.index == last.saturating_add(1),
            Kind::Truncate => {
                let known = self.view.term_at(header.index);
                header.index <= last && known.is_none_or(|term| term == header.term)
            }
            Kind::Reset => first && segment.header.reset,
            Kind::Seal | Kind::Clean | Kind::Open | Kind::Roll => {
                header.index == last && header.term == self.last_term
            }
        };
        let what = if header.sequence != self.sequence.saturating_add(1) {
            "a batch has the wrong sequence"
        } else if header.epoch != epoch {
            "a batch has the wrong epoch"
        } else if !fits {
            "a batch has the wrong index"
        } else if first && segment.header.reset && header.kind != Kind::Reset {
            "a reset record is missing"
        } else if header.durable_before >= header.sequence {
            "a batch declares itself durable"
        } else {
            return Ok(());
        };
        Err(self.damage(segment, header.position, what))
    }

    fn accept(&mut self, number: usize, segment: u64, header: &BatchHeader) {
        self.sequence = header.sequence;
        self.epoch = header.epoch;
        self.epoch_seen = self.epoch_seen.max(header.epoch);
        self.last_kind = Some(header.kind);
        self.batches += 1;
        self.bytes += header.end() - header.position;
        if self.keeps_unproven {
            self.unproven.push_back(UnprovenBatch {
                segment: number,
                header: *header,
            });
        }
        match header.kind {
            Kind::Data => self
                .view
                .add(header.index, header.term, segment, header.position),
            Kind::Truncate => self.view.truncate(header.index, header.sequence),
            Kind::Reset => {
                self.view.reset(header.index, header.term);
                self.reset = (header.sequence > self.start_sequence).then_some(header.sequence);
            }
            Kind::Seal | Kind::Clean | Kind::Open | Kind::Roll => {}
        }
        if header.kind.changes_entries() {
            self.last_term = header.term;
        }
        self.raise_proven(header.durable_before);
    }

    /// Raises `proven` to `sequence`. Batches up to it need no copy.
    fn raise_proven(&mut self, sequence: u64) {
        self.proven = self.proven.max(sequence);
        while let Some(front) = self.unproven.front()
            && front.header.sequence <= self.proven
        {
            self.proven_index = front.header.index;
            self.proven_term = front.header.term;
            self.unproven.pop_front();
        }
    }

    /// Applies rows 1 to 9 of the table in section 7.2. Returns `false` if the log ends here.
    fn classify_end(
        &mut self,
        disk: &dyn Disk,
        segments: &[SegmentFile],
        number: usize,
        window: &mut Window<'_>,
        position: u64,
        found: Probe,
    ) -> Result<bool, StoreError> {
        let Some(segment) = segments.get(number) else {
            return Ok(false);
        };
        let later = &segments[number + 1..];
        if found == Probe::End {
            // A segment always has a free sector, and its length was durable before its name. A
            // power cut therefore cannot cause this state.
            return Err(self.damage(
                segment,
                position,
                "a segment is shorter than at its creation",
            ));
        }
        let proven = "bytes that a later batch proves durable are not as written";
        if self.proven > self.sequence {
            return Err(self.damage(segment, position, proven));
        }
        let nonzero_end = window.nonzero_end(position)?;
        if nonzero_end.is_none() && later.is_empty() {
            return Ok(false);
        }
        let mut evidence = Evidence::default();
        // Evidence from the header of the bad batch, if the header can be read.
        let mut own = (0, 0);
        let resume_at = match found {
            Probe::Unsupported(cause) => return Err(unsupported(&segment.path, position, cause)),
            Probe::BadPayload(header) | Probe::BadPadding(header) | Probe::TooLong(header) => {
                self.check_order(segment, &header, position == FIRST_POSITION)?;
                own = (header.durable_before, header.epoch);
                header.end()
            }
            _ => position.saturating_add(SECTOR_BYTES),
        };
        collect_headers(window, &segment.header, resume_at, &mut evidence)?;
        let batches_after = evidence.headers > 0;
        evidence.add(own.0, own.1);
        for segment in later {
            evidence.add(segment.header.durable_before, segment.header.epoch);
            let file = segment.open(disk, OpenMode::Read)?;
            let mut window = Window::new(&segment.path, &*file, segment.len);
            collect_headers(&mut window, &segment.header, FIRST_POSITION, &mut evidence)?;
        }
        if evidence.durable_before > self.sequence {
            return Err(self.damage(segment, position, proven));
        }
        if self.last_kind == Some(Kind::Clean) && nonzero_end.is_some() && !batches_after {
            return Err(self.damage(segment, position, "bytes after a clean stop are not zero"));
        }
        match found {
            Probe::Zero => {}
            Probe::BadPayload(header) if lacks_a_sector(window, &header)? => {}
            Probe::BadPayload(..) => {
                return Err(self.damage(segment, position, "a payload is not as written"));
            }
            Probe::BadPadding(_) => {
                return Err(self.damage(segment, position, "padding is not zero"));
            }
            Probe::TooLong(_) => {
                return Err(self.damage(segment, position, "a batch ends after its file"));
            }
            _ => return Err(self.damage(segment, position, "a batch header is not as written")),
        }
        self.torn = true;
        self.epoch_seen = self.epoch_seen.max(evidence.epoch);
        self.raise_proven(evidence.durable_before);
        self.cut(disk, number, position, nonzero_end, later)?;
        Ok(false)
    }

    /// Records the bytes after the end of the log.
    fn cut(
        &mut self,
        disk: &dyn Disk,
        number: usize,
        position: u64,
        nonzero_end: Option<u64>,
        later: &[SegmentFile],
    ) -> Result<(), StoreError> {
        if let Some(to) = nonzero_end {
            self.cuts.push(CutRange {
                segment: number,
                from: position,
                to,
            });
        }
        for (offset, segment) in later.iter().enumerate() {
            let file = segment.open(disk, OpenMode::Read)?;
            let mut window = Window::new(&segment.path, &*file, segment.len);
            if let Some(to) = window.nonzero_end(FIRST_POSITION)? {
                let segment = number + 1 + offset;
                self.cuts.push(CutRange {
                    segment,
                    from: FIRST_POSITION,
                    to,
                });
            }
        }
        Ok(())
    }

    /// Checks the conditions that must hold after the whole log was read.
    fn finish(&mut self, files: &Files) -> Result<(), StoreError> {
        // This must be last. The start file describes the entry that now has the purged index, not
        // a truncated entry that had this index before.
        if self.reset.is_none()
            && let Some(start) = files.start
        {
            self.view.purged_index = start.purged_index;
            self.view.purged_term = start.purged_term;
        }
        let last = self.view.last_index;
        let purged = self.view.purged_index;
        let covered = last == purged
            || self
                .view
                .first_present()
                .is_some_and(|first| first <= purged.saturating_add(1));
        if last < purged || !covered {
            return Err(StoreError::damage(
                &files
                    .segments
                    .first()
                    .map(|segment| segment.path.clone())
                    .unwrap_or_default(),
                0,
                "entries after the purged ones are missing",
                self.sequence,
            ));
        }
        if files.start.is_none() && (self.batches > 0 || files.segments.len() > 1) {
            let what = "the start file is missing";
            return Err(StoreError::damage("log/start", 0, what, 1));
        }
        self.view.segments = files
            .segments
            .iter()
            .zip(&self.ends)
            .map(|(segment, end)| {
                Arc::new(SegmentView::new(segment.path.clone(), segment.header, *end))
            })
            .collect();
        Ok(())
    }

    fn damage(&self, segment: &SegmentFile, position: u64, what: &'static str) -> StoreError {
        StoreError::damage(
            &segment.path,
            position,
            what,
            self.sequence.saturating_add(1),
        )
    }
}
