//! Writing no more than is allowed, and no longer.

use std::io::{self, Write};
use std::time::Instant;

/// What is left of the bounds of one post-mortem.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) left_bytes: u64,
    pub(super) deadline: Instant,
}

/// Passes bytes on until a bound is met, and then fails.
#[derive(Debug)]
pub(super) struct Bounded<'a, W> {
    target: W,
    bounds: &'a mut Bounds,
}

impl<'a, W> Bounded<'a, W> {
    pub(super) fn new(target: W, bounds: &'a mut Bounds) -> Self {
        Self { target, bounds }
    }
}

impl<W: Write> Write for Bounded<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.bounds.left_bytes {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the size limit of the post-mortem is reached"));
        }
        if Instant::now() >= self.bounds.deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the time limit of the post-mortem is reached"));
        }
        let written_count = self.target.write(bytes)?;
        self.bounds.left_bytes -= written_count as u64;
        Ok(written_count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.target.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn nothing_is_written_beyond_the_bounds() {
        let mut bounds = Bounds { left_bytes: 5, deadline: Instant::now() + Duration::from_secs(3600) };
        let mut target = Vec::new();
        let mut bounded = Bounded::new(&mut target, &mut bounds);
        assert!(bounded.write_all(b"abc").is_ok());
        assert_eq!(bounded.write_all(b"def").map_err(|error| error.kind()), Err(io::ErrorKind::FileTooLarge));
        assert!(bounded.write_all(b"de").is_ok());
        assert_eq!((target, bounds.left_bytes), (b"abcde".to_vec(), 0));
        bounds = Bounds { left_bytes: 5, deadline: Instant::now() };
        let late = Bounded::new(Vec::new(), &mut bounds).write_all(b"a");
        assert_eq!(late.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    }
}
