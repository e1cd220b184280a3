//! The debug form of a configuration: what differs from the default, which is little.

use std::fmt;

use super::{Config, Origin};

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            policy,
            compact_slack_percent,
            max_split_size_bytes,
            max_non_split_rounding_bytes,
            large_segment_size_bytes,
            roundup_power2_divisions,
            garbage_collection_threshold,
            per_process_memory_fraction,
            expandable_segments,
            backend,
            release_lock_on_cudamalloc,
            graph_capture_record_stream_reuse,
            pinned_use_background_threads,
            pinned_use_cuda_host_register,
            pinned_num_register_threads,
            pinned_reserve_segment_size_bytes,
            torch_exact,
            origin: Origin { .. },
        } = self;
        let default = Self::default();
        let mut shown = f.debug_struct("Config");
        macro_rules! show {
            ($($field:ident)*) => {
                $(if *$field != default.$field {
                    shown.field(stringify!($field), $field);
                })*
            };
        }
        show!(
            policy compact_slack_percent max_split_size_bytes max_non_split_rounding_bytes large_segment_size_bytes roundup_power2_divisions
            garbage_collection_threshold per_process_memory_fraction expandable_segments backend release_lock_on_cudamalloc
            graph_capture_record_stream_reuse pinned_use_background_threads pinned_use_cuda_host_register
            pinned_num_register_threads pinned_reserve_segment_size_bytes torch_exact
        );
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_default_is_not_shown() {
        assert_eq!(format!("{:?}", Config::default()), "Config { .. }");
        let config: Config = "torch_exact:True,large_segment_size_mb:32".parse().unwrap();
        let shown = "Config { max_non_split_rounding_bytes: 33554432, large_segment_size_bytes: 33554432, torch_exact: true, .. }";
        assert_eq!(format!("{config:?}"), shown);
    }
}
