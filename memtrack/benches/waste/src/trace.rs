//! What a training run asked of its allocator.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;

/// One request or the completed free of one. Blocks are numbered from 0 in order of their allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// So many bytes are requested on a stream.
    Allocate { block: u32, bytes: u64, stream: u8 },
    /// The block's last use is over: its stream alone may still work with it.
    Free { block: u32 },
    /// A training step begins.
    Step,
}

/// A training run.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) events: Vec<Event>,
    /// What PyTorch itself had reserved at most, with expandable segments; 0 where nobody measured it.
    pub(crate) torch_reserved_bytes: u64,
}

impl Trace {
    /// Reads a recording.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let bad = |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not an event: {line}"));
        let mut events = Vec::new();
        let mut blocks: HashMap<u64, u32> = HashMap::new();
        let mut streams: Vec<u64> = vec![0];
        let (mut mapped_bytes, mut torch_reserved_bytes, mut count) = (0_u64, 0_u64, 0_u32);
        for line in BufReader::new(GzDecoder::new(File::open(path)?)).lines() {
            let line = line?;
            let fields: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| -> io::Result<u64> {
                fields.get(at).and_then(|field| field.parse().ok()).ok_or_else(|| bad(&line))
            };
            match fields[0] {
                "a" => {
                    let stream = number(3)?;
                    let stream = streams.iter().position(|&known| known == stream).unwrap_or_else(|| {
                        streams.push(stream);
                        streams.len() - 1
                    });
                    blocks.insert(number(1)?, count);
                    events.push(Event::Allocate { block: count, bytes: number(2)?, stream: stream as u8 });
                    count += 1;
                }
                // A free that waits for another stream counts from where it is complete.
                "c" => {
                    let block = blocks.remove(&number(1)?).ok_or_else(|| bad(&line))?;
                    events.push(Event::Free { block });
                }
                "p" if fields.get(2) == Some(&"data") => events.push(Event::Step),
                "M" => {
                    mapped_bytes += number(2)?;
                    torch_reserved_bytes = torch_reserved_bytes.max(mapped_bytes);
                }
                "m" => mapped_bytes -= number(2)?,
                _ => {}
            }
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.split('.').next().unwrap_or_default().to_owned();
        Ok(Self { name, events, torch_reserved_bytes })
    }

    /// The most bytes requested at once.
    pub(crate) fn requested_peak_bytes(&self) -> u64 {
        let mut sizes = Vec::new();
        let (mut live_bytes, mut peak_bytes) = (0, 0);
        for event in &self.events {
            match *event {
                Event::Allocate { bytes, .. } => {
                    sizes.push(bytes);
                    live_bytes += bytes;
                    peak_bytes = peak_bytes.max(live_bytes);
                }
                Event::Free { block } => live_bytes -= sizes[block as usize],
                Event::Step => {}
            }
        }
        peak_bytes
    }

    pub(crate) fn allocation_count(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Allocate { .. })).count()
    }
}
