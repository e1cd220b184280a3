//! In which phase what each phase allocated was freed.
//!
//! A block's owner says at its free in which phase it was allocated, so blocks need nothing more for it. Cells only grow; two
//! readings are subtracted. With the allocated bytes of the phases they say what is live by phase of origin: what a phase
//! allocated less all that was freed of it.

use super::phases::{NameId, PhaseId, PhaseTotals, Phases};

/// Phases beyond share the last row and column, so that the matrix stays within 64 KiB.
const MAX_WIDTH: usize = 64;

/// So many blocks and their rounded bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) bytes: i64,
    pub(crate) count: i64,
}

impl Amount {
    pub(super) fn add(&mut self, other: Self) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.count = self.count.wrapping_add(other.count);
    }

    fn less(self, other: Self) -> Self {
        Self { bytes: self.bytes.wrapping_sub(other.bytes), count: self.count.wrapping_sub(other.count) }
    }

    pub(crate) fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// By phase of the allocation and phase of the free.
#[derive(Debug, Clone)]
pub(super) struct Matrix {
    width: usize,
    cells: Vec<Amount>,
}

impl Default for Matrix {
    fn default() -> Self {
        Self { width: 1, cells: vec![Amount::default()] }
    }
}

impl Matrix {
    /// Makes room for so many phases.
    pub(super) fn widen(&mut self, phase_count: usize) {
        let width = phase_count.min(MAX_WIDTH);
        if width <= self.width {
            return;
        }
        let mut cells = vec![Amount::default(); width * width];
        for (row, old) in cells.chunks_exact_mut(width).zip(self.cells.chunks_exact(self.width)) {
            row[..self.width].copy_from_slice(old);
        }
        *self = Self { width, cells };
    }

    #[inline]
    pub(super) fn freed(&mut self, origin: PhaseId, phase: PhaseId, freed: Amount) {
        let last = self.width - 1;
        let at = usize::from(origin).min(last) * self.width + usize::from(phase).min(last);
        if let Some(cell) = self.cells.get_mut(at) {
            cell.add(freed);
        }
    }

    fn cell(&self, origin: usize, phase: usize) -> Amount {
        if origin < self.width && phase < self.width {
            self.cells[origin * self.width + phase]
        } else {
            Amount::default()
        }
    }
}

/// What became of one phase's blocks during an epoch: before + allocated = freed in all phases + live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MatrixRow {
    /// Of the phase that allocated; `None` for all beyond the matrix's width.
    pub(crate) origin: Option<NameId>,
    /// Live when the epoch began.
    pub(crate) before: Amount,
    pub(crate) allocated: Amount,
    /// By the phase of the free, in order of first sight.
    pub(crate) freed: Vec<(Option<NameId>, Amount)>,
    /// Live when it ended.
    pub(crate) live: Amount,
}

/// The totals and the matrix at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub(super) totals: Vec<PhaseTotals>,
    pub(super) matrix: Matrix,
}

/// The rows with anything in them, by name in order of first sight.
pub(super) fn rows_since(before: &Reading, phases: &Phases, matrix: &Matrix) -> Vec<MatrixRow> {
    // With more nodes than the matrix is wide, the last place is everybody else's.
    let shared = if phases.node_count() > MAX_WIDTH { MAX_WIDTH - 1 } else { MAX_WIDTH };
    let place_of = |node: usize| match node {
        node if node >= shared => phases.names().len(),
        node => usize::from(phases.name_id(node as PhaseId)),
    };
    let name_count = phases.names().len() + 1;
    let empty = vec![Amount::default(); name_count];
    let mut rows: Vec<(MatrixRow, Vec<Amount>)> = (0..name_count)
        .map(|at| {
            let origin = (at + 1 < name_count).then_some(at as NameId);
            let nothing = Amount::default();
            (MatrixRow { origin, before: nothing, allocated: nothing, freed: Vec::new(), live: nothing }, empty.clone())
        })
        .collect();
    let amount = |totals: &PhaseTotals| Amount {
        bytes: totals.allocated_bytes as i64,
        count: i64::try_from(totals.allocation_count).unwrap_or(i64::MAX),
    };
    let nothing = PhaseTotals::default();
    for (node, totals) in phases.all_totals().iter().enumerate() {
        let at = place_of(node);
        let (then, now) = (amount(before.totals.get(node).unwrap_or(&nothing)), amount(totals));
        rows[at].0.before.add(then);
        rows[at].0.allocated.add(now.less(then));
        rows[at].0.live.add(now);
    }
    for origin in 0..matrix.width {
        let row = place_of(origin);
        for phase in 0..matrix.width {
            let column = place_of(phase);
            let (then, now) = (before.matrix.cell(origin, phase), matrix.cell(origin, phase));
            let (books, freed) = &mut rows[row];
            books.before = books.before.less(then);
            books.live = books.live.less(now);
            freed[column].add(now.less(then));
        }
    }
    let finish = |(mut row, freed): (MatrixRow, Vec<Amount>)| {
        let named = freed.into_iter().enumerate().filter(|(_, amount)| !amount.is_nothing());
        row.freed = named.map(|(at, amount)| ((at + 1 < name_count).then_some(at as NameId), amount)).collect();
        row
    };
    rows.into_iter()
        .map(finish)
        .filter(|row| !(row.before.is_nothing() && row.allocated.is_nothing() && row.live.is_nothing()))
        .collect()
}
