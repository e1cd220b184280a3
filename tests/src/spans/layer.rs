//! The recorder as a layer, for stacks of layers and filters.

use super::{Spans, Values};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut values = Values::default();
        attributes.record(&mut values);
        let parent = context.span(id).and_then(|span| span.parent()).map(|parent| parent.id());
        let mut log = self.log();
        let parent = parent.and_then(|parent| log.ids.get(&parent.into_u64()).copied());
        let index = log.begin(attributes.metadata(), values, parent);
        log.ids.insert(id.into_u64(), index);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        let mut values = Values::default();
        record.record(&mut values);
        let mut log = self.log();
        if let Some(index) = log.ids.get(&id.into_u64()).copied() {
            log.spans[index].records.push(values.0);
            log.note("record", index);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.keep_event(event);
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        let mut log = self.log();
        if let Some(index) = log.ids.get(&id.into_u64()).copied() {
            log.note("enter", index);
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let mut log = self.log();
        if let Some(index) = log.ids.get(&id.into_u64()).copied() {
            log.note("exit", index);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut log = self.log();
        if let Some(index) = log.ids.remove(&id.into_u64()) {
            log.note("close", index);
        }
    }
}
