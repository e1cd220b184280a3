//! Traces: text with an allocator event a line.

use std::iter::Peekable;

use memtrack::history::TraceAction;
use memtrack::plain_text::counted;

use super::blocks::Blocks;
use super::error::ReadError;
use super::history::{ExpectedHistory, HistoryEntry};
use super::json::At;
use super::script::ScriptWriter;
use super::value::Json;
use super::{
    Answer, Expected, Kind, MOST_REQUEST, MOST_REQUEST_BYTES, MOST_STREAM, MOST_TOTAL, MOST_TOTAL_BYTES, OWN_STREAMS,
    Recording, Step, check_addresses, check_segment_address, check_step_count, forget_addresses, statistics,
};
use crate::operation::Operation;
use crate::statistics::StatisticKey;

const EVENTS: &str = "`a ID BYTES STREAM ADDRESS`, `f ID`, `c ID`, `o BYTES STREAM`, `p EPOCH PHASE`, \
                      `S ADDRESS BYTES STREAM`, `s ADDRESS BYTES`, `M ADDRESS BYTES STREAM`, `m ADDRESS BYTES`, or a comment that begins with #";

pub(super) fn read(text: &str) -> Result<Recording, ReadError> {
    let mut recording = Recording::new(Kind::Trace);
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut notes = Notes::default();
    for (index, content) in text.lines().enumerate() {
        let line = Line { number: index + 1, content: content.trim_ascii() };
        match line.content.strip_prefix('#') {
            Some(note) => notes.read(note.trim_ascii(), &mut recording).map_err(|error| line.inside(error))?,
            None if line.content.is_empty() => {}
            None => lines.push(line),
        }
        check_step_count(lines.len())?;
    }
    let mut reader = EventReader {
        says_completions: lines.iter().any(|line| line.kind() == "c"),
        blocks: Blocks::default(),
        // Blocks that were freed while another stream used them, by the file's numbers.
        in_use: Blocks::default(),
        script: ScriptWriter::default(),
        device_calls: Vec::new(),
        marks: notes.marks.as_deref(),
        mark_count: 0,
        steps: Vec::new(),
        operation_count: 0,
    };
    let mut events = lines.iter().copied().peekable();
    while let Some(line) = events.next() {
        reader.event(line, &mut events).map_err(|problem| ReadError::Line { line: line.number, problem })?;
        check_step_count(reader.steps.len())?;
    }
    if let Some(marks) = &notes.marks
        && marks.len() != reader.mark_count
    {
        let problem = format!(
            "{} for {}; there is one mark for each",
            counted(marks.len() as u64, "mark"),
            counted(reader.mark_count as u64, "`p` line")
        );
        return Err(ReadError::Content { path: "# marks".to_owned(), problem });
    }
    recording.script = reader.script.finish();
    if recording.script == super::Script::None {
        check_addresses(&reader.steps).map_err(|(line, problem)| ReadError::Line { line, problem })?;
        forget_addresses(&mut reader.steps);
    }
    recording.steps = reader.steps;
    recording.block_count = reader.blocks.count();
    recording.operation_count = reader.operation_count;
    if notes.marks.is_some() || notes.end.is_some() {
        let history = (recording.script != super::Script::None)
            .then_some(ExpectedHistory { device_calls_alone: true, entries: reader.device_calls });
        recording.expected = Some(Expected { end: notes.end.unwrap_or_default(), history, ..Expected::default() });
    }
    Ok(recording)
}

#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    number: usize,
    content: &'a str,
}

impl<'a> Line<'a> {
    fn kind(&self) -> &'a str {
        self.content.split_ascii_whitespace().next().unwrap_or_default()
    }

    /// An error of the JSON in a comment, with the line.
    fn inside(&self, error: ReadError) -> ReadError {
        ReadError::Line { line: self.number, problem: error.to_string() }
    }
}

/// A phase mark: epoch, phase, statistics.
#[derive(Debug)]
struct RecordedMark {
    epoch: u64,
    phase: String,
    statistics: Vec<(StatisticKey, i64)>,
}

/// What comments say that mean something.
#[derive(Debug, Default)]
struct Notes {
    has_meta: bool,
    marks: Option<Vec<RecordedMark>>,
    end: Option<Vec<(StatisticKey, i64)>>,
}

impl Notes {
    fn read(&mut self, note: &str, recording: &mut Recording) -> Result<(), ReadError> {
        let (name, json) = note.split_once(' ').unwrap_or((note, ""));
        if !matches!(name, "meta" | "final" | "marks") {
            return Ok(());
        }
        let is_second = match name {
            "meta" => std::mem::replace(&mut self.has_meta, true),
            "final" => self.end.is_some(),
            _ => self.marks.is_some(),
        };
        if is_second {
            let problem = "there is such a line already; a file has one".to_owned();
            return Err(ReadError::Content { path: format!("# {name}"), problem });
        }
        let value = Json::parse(json.as_bytes())?;
        let whole = At::whole(&value);
        match name {
            "meta" => {
                if let Some(configuration) = whole.optional("conf")? {
                    configuration.text()?.clone_into(&mut recording.configuration);
                }
                if let Some(total) = whole.optional("total_memory")? {
                    recording.total_bytes = Some(total.at_most(MOST_TOTAL_BYTES, MOST_TOTAL)?);
                }
                if let Some(fraction) = whole.optional("memory_fraction")? {
                    recording.memory_fraction = fraction.fraction()?;
                }
            }
            "final" => self.end = Some(statistics(&whole)?),
            _ => {
                let mark = |mark: At<'_>| {
                    mark.ends_at(3)?;
                    Ok(RecordedMark {
                        epoch: mark.item(0, "the epoch")?.unsigned()?,
                        phase: mark.item(1, "the phase")?.text()?.to_owned(),
                        statistics: statistics(&mark.item(2, "the statistics")?)?,
                    })
                };
                self.marks = Some(whole.items()?.map(mark).collect::<Result<_, ReadError>>()?);
            }
        }
        Ok(())
    }
}

struct EventReader<'a> {
    /// Whether the file has `c` lines at all; in one without, every free is complete at once.
    says_completions: bool,
    blocks: Blocks,
    in_use: Blocks,
    script: ScriptWriter,
    device_calls: Vec<HistoryEntry>,
    marks: Option<&'a [RecordedMark]>,
    mark_count: usize,
    steps: Vec<Step>,
    operation_count: usize,
}

impl EventReader<'_> {
    fn event<'l>(
        &mut self,
        line: Line<'l>,
        following: &mut Peekable<impl Iterator<Item = Line<'l>>>,
    ) -> Result<(), String> {
        let mut fields = Fields { fields: line.content.split_ascii_whitespace().skip(1) };
        match line.kind() {
            "a" => {
                let id = fields.number("the block's number")?;
                let bytes = fields.at_most("the bytes", MOST_REQUEST_BYTES, MOST_REQUEST)?;
                let stream = fields.optional_stream()?;
                let address = fields.optional_number("the address")?;
                let block = self.blocks.allocate(id)?;
                let answer = Some(address.map_or(Answer::Served, Answer::Address));
                let operation = Operation::Allocate { block, bytes, stream };
                self.steps.push(Step { answer, ..Step::new(line.number, operation) });
                self.operation_count += 1;
            }
            "f" => {
                let id = fields.number("the block's number")?;
                let block = self.blocks.free(id)?;
                let completes = |next: &Line<'l>| {
                    let mut words = next.content.split_ascii_whitespace();
                    words.next() == Some("c") && words.next().is_some_and(|word| word.parse() == Ok(id))
                };
                let at_once = !self.says_completions || following.next_if(completes).is_some();
                let operation = if at_once {
                    Operation::Free { block }
                } else {
                    self.in_use.insert(id, block)?;
                    Operation::FreeInUse { block }
                };
                self.steps.push(Step::new(line.number, operation));
                self.operation_count += 1;
            }
            "c" => {
                let id = fields.number("the block's number")?;
                let unknown = |_| format!("no free of block {id} is waiting to be complete here");
                let block = self.in_use.free(id).map_err(unknown)?;
                self.steps.push(Step::new(line.number, Operation::CompleteFree { block }));
            }
            "o" => {
                let bytes = fields.at_most("the bytes", MOST_REQUEST_BYTES, MOST_REQUEST)?;
                let stream = fields.optional_stream()?;
                let block = self.blocks.allocate_unnamed();
                let ask = Step::new(line.number, Operation::Allocate { block, bytes, stream });
                self.steps.push(Step { answer: Some(Answer::OutOfMemory), ..ask });
                // With other settings there may be room.
                self.steps.push(Step::new(line.number, Operation::Free { block }));
                self.operation_count += 1;
            }
            "p" => {
                let epoch = fields.number("the epoch")?;
                let phase = fields.word("the phase")?;
                self.mark(line.number, epoch, phase)?;
            }
            kind @ ("S" | "M" | "s" | "m") => {
                let action = match kind {
                    "S" => TraceAction::SegmentAlloc,
                    "M" => TraceAction::SegmentMap,
                    "s" => TraceAction::SegmentFree,
                    _ => TraceAction::SegmentUnmap,
                };
                let takes = matches!(kind, "S" | "M");
                let address = fields.number("the address")?;
                let address = if takes { check_segment_address(address)? } else { address };
                let bytes = fields.number("the bytes")?;
                let stream = if takes { fields.stream_if_any()? } else { None };
                match kind {
                    "S" => self.script.segment_allocated(address),
                    "M" => self.script.mapped(address, bytes),
                    "m" => self.script.unmapped(address, bytes),
                    _ => {}
                }
                let number = line.number;
                self.device_calls.push(HistoryEntry { number, action, address: Some(address), bytes, stream });
            }
            other => return Err(format!("`{other}` is no event; a line is {EVENTS}")),
        }
        fields.end()
    }

    fn mark(&mut self, number: usize, epoch: u64, phase: &str) -> Result<(), String> {
        let mut step = Step::new(number, Operation::Mark { name: format!("phase {phase} of epoch {epoch}").into() });
        if let Some(mark) = self.marks.and_then(|marks| marks.get(self.mark_count)) {
            if (mark.epoch, mark.phase.as_str()) != (epoch, phase) {
                let RecordedMark { epoch, phase, .. } = mark;
                return Err(format!("mark {} of the file is of phase {phase} of epoch {epoch}", self.mark_count));
            }
            step.statistics.clone_from(&mark.statistics);
        }
        self.mark_count += 1;
        self.steps.push(step);
        Ok(())
    }
}

/// The words of a line, behind its kind.
struct Fields<I> {
    fields: I,
}

impl<'l, I: Iterator<Item = &'l str>> Fields<I> {
    fn optional_number(&mut self, what: &str) -> Result<Option<u64>, String> {
        let Some(word) = self.fields.next() else { return Ok(None) };
        let number = word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok()).flatten();
        number.map(Some).ok_or_else(|| format!("{what}, `{word}`, is no whole number from 0 to 2^64 - 1"))
    }

    fn number(&mut self, what: &str) -> Result<u64, String> {
        self.optional_number(what)?.ok_or_else(|| format!("{what} is missing"))
    }

    fn at_most(&mut self, what: &str, limit: u64, said: &str) -> Result<u64, String> {
        let number = self.number(what)?;
        if number <= limit { Ok(number) } else { Err(format!("{what}, {number}: at most {said}")) }
    }

    fn optional_stream(&mut self) -> Result<u64, String> {
        Ok(self.stream_if_any()?.unwrap_or(0))
    }

    fn stream_if_any(&mut self) -> Result<Option<u64>, String> {
        let stream = self.optional_number("the stream")?;
        match stream {
            Some(stream) if stream >= OWN_STREAMS => Err(format!("the stream, {stream}: at most {MOST_STREAM}")),
            _ => Ok(stream),
        }
    }

    fn word(&mut self, what: &str) -> Result<&'l str, String> {
        self.fields.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn end(mut self) -> Result<(), String> {
        self.fields.next().map_or(Ok(()), |word| Err(format!("`{word}` is one word too many")))
    }
}
