//! Which space a block of middle size goes to: larger than small ones, and at most half a page.

/// What can be varied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Middle {
    /// The largest of middle size.
    pub(crate) up_to_bytes: u64,
    /// With the small ones while fewer were freed than so many times those that live.
    pub(crate) freed_per_live: f64,
    /// With the small ones, too, where they live more than so many times longer than large ones; `None`: that is not asked.
    pub(crate) slower_times: Option<u64>,
    /// A run of pages that comes to a hole counts as a large block that was freed, so that one for which there was no free memory does not
    /// count as live: it is rather one that stays.
    pub(crate) leaves_out_grown: bool,
    /// Instead: with the large ones where a free block there fits, else with the small ones.
    pub(crate) ends_first: bool,
}

impl Middle {
    /// No size is one.
    pub(crate) const NONE: Self =
        Self { up_to_bytes: 0, freed_per_live: 0.0, slower_times: None, leaves_out_grown: false, ends_first: false };
}

impl Default for Middle {
    fn default() -> Self {
        Self {
            up_to_bytes: 1 << 20,
            freed_per_live: 0.5,
            slower_times: Some(8),
            leaves_out_grown: false,
            ends_first: false,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Turnover {
    live: u64,
    freed: u64,
}

/// What the middle and the large sizes of a stream have done so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MiddleSizes {
    middle: Turnover,
    large: Turnover,
}

impl MiddleSizes {
    fn like(&mut self, is_middle: bool) -> &mut Turnover {
        if is_middle { &mut self.middle } else { &mut self.large }
    }

    pub(crate) fn allocated(&mut self, is_middle: bool) {
        self.like(is_middle).live += 1;
    }

    pub(crate) fn freed(&mut self, is_middle: bool) {
        let sizes = self.like(is_middle);
        sizes.live = sizes.live.saturating_sub(1);
        sizes.freed += 1;
    }

    /// Whether the next block of middle size goes with the small ones.
    pub(crate) fn are_small(&self, rules: &Middle) -> bool {
        let Self { middle, large } = *self;
        let mostly_live = (middle.freed as f64) < rules.freed_per_live * middle.live as f64;
        mostly_live
            || rules.slower_times.is_some_and(|times| middle.live * large.freed > large.live * middle.freed * times)
    }
}
