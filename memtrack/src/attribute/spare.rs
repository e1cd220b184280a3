//! Boxes of asynchronous calls that have ended, kept for the next calls, so that measuring one does not allocate.

use super::tracked::Measuring;
use std::cell::RefCell;

/// How many boxes a thread keeps: as many calls as are usually open in each other.
const KEPT: usize = 16;

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    static SPARE: RefCell<Vec<Box<Measuring>>> = const { RefCell::new(Vec::new()) };
}

/// Boxes a call.
pub(super) fn boxed(measuring: Measuring) -> Box<Measuring> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
    match spare {
        Some(mut place) => {
            *place = measuring;
            place
        }
        None => Box::new(measuring),
    }
}

/// Keeps the box of a call that has ended and lets go of its span, or drops both.
pub(super) fn keep(mut ended: Box<Measuring>) {
    // Before anything is borrowed: the subscriber hears of it, and may call tracked functions.
    ended.let_go_of_span();
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < KEPT {
            spare.push(ended);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn the_next_call_gets_the_box_of_the_one_before() {
        let first = boxed(Measuring::ended());
        let place = ptr::from_ref(&*first);
        keep(first);
        assert_eq!(ptr::from_ref(&*boxed(Measuring::ended())), place);
    }

    #[test]
    fn a_thread_keeps_a_limited_number_of_boxes() {
        let many: Vec<_> = (0..KEPT + 5).map(|_| boxed(Measuring::ended())).collect();
        many.into_iter().for_each(keep);
        assert_eq!(SPARE.with_borrow(Vec::len), KEPT);
    }
}
