//! What a run came to, as a JSON object for programs that compare runs.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use crate::options::Options;
use crate::pool::PoolPeaks;

/// Losses and times of a run that reached its last step.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) options: &'a Options,
    pub(crate) parameters: usize,
    pub(crate) losses: Vec<f32>,
    /// Of every step, from its text to its loss on the host.
    pub(crate) times: Vec<Duration>,
    pub(crate) generated: String,
    /// The driver's pool.
    pub(crate) pool: Option<PoolPeaks>,
    /// The most of the GPU that was in use after a step, whoever used it; and all of it.
    pub(crate) device_bytes: Option<(u64, u64)>,
    /// The most that an epoch of memtrack's saw allocated.
    pub(crate) memtrack_peak_bytes: Option<i64>,
}

impl Report<'_> {
    /// Milliseconds of the steps after the warm-up, the fastest first.
    pub(crate) fn sorted_milliseconds(&self) -> Vec<f64> {
        let counted = self.times.iter().skip(self.options.warm_up);
        let mut times: Vec<f64> = counted.map(|time| time.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        times
    }
}

/// The value that this share of the sorted numbers does not exceed; 0 without numbers.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(0.0)
}

impl Display for Report<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let times = self.sorted_milliseconds();
        let [p10, median, p90] = [0.1, 0.5, 0.9].map(|share| quantile(&times, share));
        let Options { device, steps, batch_size, context, layers, width, seed, no_tracking, .. } = self.options;
        write!(
            formatter,
            r#"{{"device":"{}","tracked":{},"steps":{steps},"batch_size":{batch_size},"context":{context},"layers":{layers}"#,
            device.name(),
            !no_tracking
        )?;
        write!(formatter, r#","width":{width},"seed":{seed},"parameters":{}"#, self.parameters)?;
        write!(formatter, r#","step_ms":{{"median":{median:.4},"p10":{p10:.4},"p90":{p90:.4}}}"#)?;
        for (name, bytes) in [
            ("pool_used_peak_bytes", self.pool.map(|pool| pool.used_bytes)),
            ("pool_reserved_peak_bytes", self.pool.map(|pool| pool.reserved_bytes)),
            ("device_used_bytes", self.device_bytes.map(|(used, _)| used)),
            ("device_total_bytes", self.device_bytes.map(|(_, total)| total)),
            ("memtrack_peak_bytes", self.memtrack_peak_bytes.and_then(|bytes| bytes.try_into().ok())),
        ] {
            if let Some(bytes) = bytes {
                write!(formatter, r#","{name}":{bytes}"#)?;
            }
        }
        write!(formatter, r#","losses":["#)?;
        for (number, loss) in self.losses.iter().enumerate() {
            // The shortest digits that name this `f32` and no other.
            write!(formatter, "{}{loss:?}", if number == 0 { "" } else { "," })?;
        }
        write!(formatter, r#"],"generated":{}}}"#, JsonText(&self.generated))
    }
}

/// A text in JSON's quotation marks.
struct JsonText<'a>(&'a str);

impl Display for JsonText<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"")?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(formatter, "\\{character}")?,
                control if control < ' ' => write!(formatter, "\\u{:04x}", u32::from(control))?,
                other => write!(formatter, "{other}")?,
            }
        }
        write!(formatter, "\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_times_after_the_warm_up() {
        let options = Options::read(["candle-gpt", "--steps", "7", "--warm-up", "2"]).unwrap();
        let report = Report {
            options: &options,
            parameters: 1,
            losses: vec![5.5, 0.1],
            times: [900, 800, 5, 1, 3, 4, 2].map(Duration::from_millis).to_vec(),
            generated: "a\"b\n".to_owned(),
            pool: None,
            device_bytes: None,
            memtrack_peak_bytes: Some(77),
        };
        assert_eq!(report.sorted_milliseconds(), [1.0, 2.0, 3.0, 4.0, 5.0]);
        let json = report.to_string();
        assert!(json.contains(r#""step_ms":{"median":3.0000,"p10":1.0000,"p90":5.0000}"#), "{json}");
        assert!(json.ends_with(r#""memtrack_peak_bytes":77,"losses":[5.5,0.1],"generated":"a\"b\u000a"}"#), "{json}");
    }
}
