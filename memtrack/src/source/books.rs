//! Which scopes are open over which sources, and the arithmetic of marks that can only be set back to now.
//!
//! A source's high-water mark knows one interval: since it was last reset. Each boundary of any scope ends such a window: the mark is
//! read, counted into every open scope, and reset. So a scope's peak is the highest of the windows in it, and nested peaks are exact.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::rows::Row;
use super::{Exactness, MemorySource, PeakKind, SourceError, SourceFigures, SourceReading, SourceSummary};
use crate::ledger::ScopeKey;
use crate::units::signed;

/// A scope on one allocator. Of a scope on several, the last.
pub(super) type SpanId = (u64, ScopeKey);

/// A source that was told of no failure so far, or what was said of it.
pub(super) type Warning = (Arc<str>, SourceError);

/// Everything that is registered and open.
#[derive(Debug)]
pub(super) struct Books {
    watched: Vec<Watched>,
    /// In the order of opening, so that the scopes around one come before it.
    open: Vec<Span>,
    next_id: u64,
}

#[derive(Debug)]
struct Watched {
    id: u64,
    source: Arc<dyn MemorySource>,
    name: Arc<str>,
    device: Option<u32>,
    exactness: Exactness,
    /// The mark after our last reset: it cannot fall below unless somebody else resets it.
    floor_bytes: Option<u64>,
    has_failed: bool,
}

/// The end of one window of a source and the beginning of the next.
struct Moment {
    ended: Result<SourceReading, SourceError>,
    begun: Result<SourceReading, SourceError>,
    was_reset_elsewhere: bool,
}

#[derive(Debug)]
struct Span {
    id: SpanId,
    parent: Option<SpanId>,
    phase: Option<&'static str>,
    /// Another scope, neither around nor inside this one, was open meanwhile.
    is_shared: bool,
    views: Vec<View>,
    /// Of an epoch: its phases.
    rows: Option<Vec<Row>>,
}

/// One source over one scope.
#[derive(Debug)]
struct View {
    source: u64,
    figures: SourceFigures,
    begun: Option<SourceReading>,
    peak_bytes: u64,
    reserved_peak_bytes: Option<u64>,
    has_mark: bool,
    was_reset_elsewhere: bool,
}

/// What a source does is its affair; that it panics must not end the program.
fn guarded<T>(call: impl FnOnce() -> Result<T, SourceError>) -> Result<T, SourceError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().map(ToString::to_string);
        let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(SourceError::Panicked { message: message.unwrap_or_else(|| "no message".to_owned()) })
    })
}

impl Watched {
    fn read(&self) -> Result<SourceReading, SourceError> {
        guarded(|| self.source.read())
    }

    /// The mark that it reads, if others read it as well.
    fn mark(&self) -> Option<u64> {
        guarded(|| Ok(self.source.mark())).ok().flatten()
    }

    /// Ends a window with what was read.
    fn end(&mut self, ended: Result<SourceReading, SourceError>) -> Moment {
        let Ok(reading) = &ended else {
            if ended.as_ref().is_err_and(SourceError::spoils_open_scopes) {
                // Another one from here on.
                let begun = self.begin();
                return Moment { ended, begun, was_reset_elsewhere: false };
            }
            // The mark stays as it is: the next look has what was missed.
            return Moment { begun: ended.clone(), ended, was_reset_elsewhere: false };
        };
        let Some(mark_bytes) = reading.peak_bytes else {
            return Moment { begun: ended.clone(), ended, was_reset_elsewhere: false };
        };
        let was_reset_elsewhere = self.floor_bytes.is_some_and(|floor_bytes| mark_bytes < floor_bytes);
        let begun = self.begin();
        Moment { ended, begun, was_reset_elsewhere }
    }

    /// Begins a window.
    fn begin(&mut self) -> Result<SourceReading, SourceError> {
        // Read after the reset, since the mark is that of the moment of the reset, and other threads do not stand still.
        let begun = guarded(|| self.source.reset_peak()).and_then(|()| self.read());
        self.floor_bytes = begun.as_ref().ok().and_then(|begun| begun.peak_bytes);
        begun
    }

    fn view(&self, moment: Moment) -> View {
        let failure = SourceError::Unregistered;
        let mut figures = SourceFigures::absent(Arc::clone(&self.name), self.device, self.exactness, failure);
        let begun = match moment.begun {
            Ok(begun) => {
                figures.begin(&begun);
                Some(begun)
            }
            Err(error) => {
                figures.failure = Some(error);
                None
            }
        };
        View {
            source: self.id,
            figures,
            peak_bytes: begun.map_or(0, |begun| begun.current_bytes),
            reserved_peak_bytes: begun.and_then(|begun| begun.reserved_bytes),
            has_mark: begun.is_some_and(|begun| begun.peak_bytes.is_some()),
            was_reset_elsewhere: false,
            begun,
        }
    }
}

impl View {
    /// Counts a window that has ended.
    fn fold(&mut self, moment: &Moment) {
        let spoiling = [&moment.ended, &moment.begun].into_iter().filter_map(|reading| reading.as_ref().err());
        if let Some(error) = spoiling.into_iter().find(|error| error.spoils_open_scopes())
            && self.begun.take().is_some()
        {
            self.figures.failure = Some(error.clone());
        }
        let Ok(ended) = &moment.ended else { return };
        self.peak_bytes = self.peak_bytes.max(ended.current_bytes).max(ended.peak_bytes.unwrap_or(0));
        // None is less than any number.
        let reserved_bytes = ended.reserved_peak_bytes.max(ended.reserved_bytes);
        self.reserved_peak_bytes = self.reserved_peak_bytes.max(reserved_bytes);
        self.has_mark &= ended.peak_bytes.is_some();
        self.was_reset_elsewhere |= moment.was_reset_elsewhere;
    }

    /// The figures of a scope that ends with this moment, which has been counted; `None` for a source that is gone.
    fn close(mut self, ended: Option<&Result<SourceReading, SourceError>>, is_shared: bool) -> SourceFigures {
        self.figures.peak_kind = match (self.has_mark, self.was_reset_elsewhere) {
            (false, _) => PeakKind::AtBoundaries,
            (true, true) => PeakKind::ResetElsewhere,
            (true, false) if is_shared => PeakKind::Shared,
            (true, false) => PeakKind::Exact,
        };
        let Some(begun) = self.begun else { return self.figures };
        match ended {
            Some(Ok(ended)) => {
                self.figures.end(&begun, ended);
                self.figures.peak_bytes = Some(signed(self.peak_bytes));
                self.figures.reserved_peak_bytes = self.reserved_peak_bytes.map(signed);
            }
            Some(Err(error)) => self.figures.failure = Some(error.clone()),
            None => self.figures.failure = Some(SourceError::Unregistered),
        }
        self.figures
    }
}

/// Ends a window of each source. Sources of one mark are all read before the first of them sets it back.
fn look_at(watched: &mut [Watched]) -> Vec<Moment> {
    if let [alone] = watched {
        let ended = alone.read();
        return vec![alone.end(ended)];
    }
    let marks: Vec<Option<u64>> = watched.iter().map(Watched::mark).collect();
    let mut moments: Vec<Option<Moment>> = watched.iter().map(|_| None).collect();
    for first in 0..watched.len() {
        if moments[first].is_some() {
            continue;
        }
        let is_like = |other: &usize| *other == first || (marks[first].is_some() && marks[*other] == marks[first]);
        let group: Vec<usize> = (first..watched.len()).filter(is_like).collect();
        let ended: Vec<_> = group.iter().map(|at| watched[*at].read()).collect();
        for (at, ended) in group.iter().zip(ended) {
            moments[*at] = Some(watched[*at].end(ended));
        }
        // The last reset is everybody's.
        let floor_bytes = group.last().and_then(|last| watched[*last].floor_bytes);
        group.iter().for_each(|at| watched[*at].floor_bytes = floor_bytes);
    }
    moments.into_iter().flatten().collect()
}

impl Books {
    pub(super) const fn new() -> Self {
        Self { watched: Vec::new(), open: Vec::new(), next_id: 0 }
    }

    /// Enters a source that can be read, and gives its number.
    pub(super) fn register(&mut self, source: Arc<dyn MemorySource>) -> Result<u64, SourceError> {
        let (name, device, exactness) = guarded(|| {
            let name: Arc<str> = source.name().into();
            Ok((name, source.device(), source.exactness()))
        })?;
        if self.watched.iter().any(|watched| watched.name == name) {
            return Err(SourceError::NameTaken { name: name.as_ref().to_owned() });
        }
        let _ = guarded(|| source.read())?;
        self.next_id += 1;
        let id = self.next_id;
        self.watched.push(Watched { id, source, name, device, exactness, floor_bytes: None, has_failed: false });
        Ok(id)
    }

    /// Takes a source out, which is to be dropped outside the lock.
    pub(super) fn unregister(&mut self, id: u64) -> Option<Arc<dyn MemorySource>> {
        let position = self.watched.iter().position(|watched| watched.id == id)?;
        Some(self.watched.remove(position).source)
    }

    pub(super) fn source_count(&self) -> usize {
        self.watched.len()
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Ends a window of each source and counts it into all open scopes.
    fn look(&mut self, warnings: &mut Vec<Warning>) -> Vec<Moment> {
        let Self { watched, open, .. } = self;
        let moments = look_at(watched);
        for (watched, moment) in watched.iter_mut().zip(&moments) {
            let views = open.iter_mut().flat_map(|span| &mut span.views);
            views.filter(|view| view.source == watched.id).for_each(|view| view.fold(moment));
            if let Some(error) = moment.ended.as_ref().err().or(moment.begun.as_ref().err())
                && !std::mem::replace(&mut watched.has_failed, true)
            {
                warnings.push((Arc::clone(&watched.name), error.clone()));
            }
        }
        moments
    }

    /// A scope begins inside `parent`.
    pub(super) fn open(
        &mut self,
        id: SpanId,
        parent: Option<SpanId>,
        phase: Option<&'static str>,
        is_epoch: bool,
        warnings: &mut Vec<Warning>,
    ) {
        if self.watched.is_empty() {
            return;
        }
        let moments = self.look(warnings);
        let views = self.watched.iter().zip(moments).map(|(watched, moment)| watched.view(moment)).collect();
        let is_shared = self.mark_shared(parent);
        let rows = is_epoch.then(Vec::new);
        self.open.push(Span { id, parent, phase, is_shared, views, rows });
    }

    /// Marks what is open beside a new scope; whether there is such.
    fn mark_shared(&mut self, parent: Option<SpanId>) -> bool {
        let mut around = parent;
        let mut is_shared = false;
        // From the innermost outwards: a scope comes after those around it.
        for span in self.open.iter_mut().rev() {
            if Some(span.id) == around {
                around = span.parent;
            } else {
                span.is_shared = true;
                is_shared = true;
            }
        }
        is_shared
    }

    /// A scope ends. No figures where no source was registered when it began.
    pub(super) fn close(
        &mut self,
        id: SpanId,
        warnings: &mut Vec<Warning>,
    ) -> (Vec<SourceFigures>, Option<Vec<SourceSummary>>) {
        let Some(position) = self.position(id) else { return Default::default() };
        let moments = self.look(warnings);
        let span = self.remove(position);
        let ended = |source: u64| {
            let position = self.watched.iter().position(|watched| watched.id == source)?;
            moments.get(position).map(|moment| &moment.ended)
        };
        let is_shared = span.is_shared;
        let close = |view: View| {
            let source = view.source;
            (source, view.close(ended(source), is_shared))
        };
        let figures: Vec<(u64, SourceFigures)> = span.views.into_iter().map(close).collect();
        if let Some(phase) = span.phase {
            self.book(phase, id.0, span.parent, &figures);
        }
        let summaries = span.rows.map(|rows| SourceSummary::of_epoch(&figures, &rows));
        (figures.into_iter().map(|(_, figures)| figures).collect(), summaries)
    }

    /// A scope ends whose figures nobody reads: only a phase is looked at.
    pub(super) fn close_unread(&mut self, id: SpanId, warnings: &mut Vec<Warning>) {
        let Some(position) = self.position(id) else { return };
        if self.open[position].phase.is_some() {
            let _ = self.close(id, warnings);
        } else {
            let _ = self.remove(position);
        }
    }

    fn position(&self, id: SpanId) -> Option<usize> {
        self.open.iter().rposition(|span| span.id == id)
    }

    /// Those inside it are from now on inside what is around it.
    fn remove(&mut self, position: usize) -> Span {
        let span = self.open.remove(position);
        let inside = self.open.iter_mut().skip(position).filter(|inner| inner.parent == Some(span.id));
        inside.for_each(|inner| inner.parent = span.parent);
        span
    }

    /// Books a phase in the open epochs of its allocator.
    fn book(
        &mut self,
        phase: &'static str,
        allocator: u64,
        mut around: Option<SpanId>,
        figures: &[(u64, SourceFigures)],
    ) {
        let mut is_recursive = false;
        for span in self.open.iter().rev() {
            if Some(span.id) == around {
                is_recursive |= span.phase == Some(phase);
                around = span.parent;
            }
        }
        for span in self.open.iter_mut().filter(|span| span.id.0 == allocator) {
            let Some(rows) = &mut span.rows else { continue };
            for (source, figures) in figures {
                Row::find(rows, *source, phase).count(figures, is_recursive);
            }
        }
    }
}
