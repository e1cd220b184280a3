//! Getting at a file's bytes: a path or standard input, plain or gzipped, and no more than fits.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::error::ReadError;

/// More than any recording has; a small gzip file can stand for a hundred times as much as memory holds.
const MOST_BYTES: u64 = 1 << 30;

const GZIP_START: [u8; 2] = [0x1f, 0x8b];

/// The bytes of a file, unpacked when they are gzipped, whatever the file is called. `-` is standard input.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    let bytes = if path.as_os_str() == "-" {
        take(io::stdin().lock(), ReadError::Io)?
    } else {
        take(File::open(path).map_err(ReadError::Io)?, ReadError::Io)?
    };
    if bytes.is_empty() {
        return Err(ReadError::Empty);
    }
    if bytes.starts_with(&GZIP_START) {
        let bytes = take(MultiGzDecoder::new(bytes.as_slice()), ReadError::Gzip)?;
        return if bytes.is_empty() { Err(ReadError::Empty) } else { Ok(bytes) };
    }
    if path.extension().is_some_and(|extension| extension == "gz") {
        return Err(ReadError::NotGzip);
    }
    Ok(bytes)
}

/// All there is, up to the limit.
fn take(source: impl Read, failed: impl FnOnce(io::Error) -> ReadError) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    source.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES { Err(ReadError::TooLarge { limit_bytes: MOST_BYTES }) } else { Ok(bytes) }
}
