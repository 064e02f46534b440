//! The charts, as numbers in the units of their `viewBox`, which are about a pixel each: a panel is as wide as a phone,
//! and where there is room three stand side by side. Colours are the style sheet's.

use super::{Counts, Decided, Layer, Minute, clock, in_words, of_layer};
use crate::guard::decided::Effect;

/// The longest bar.
const BAR: u64 = 130;
/// The shortest bar of what did happen.
const SPECK: u64 = 2;
/// From one bar to the next.
const BAR_PITCH: usize = 24;
/// The highest column.
const COLUMN: u64 = 72;
/// Where columns stand.
const FLOOR: u64 = 92;
/// From one column to the next.
const COLUMN_PITCH: usize = 5;
/// Where the first stands.
const LEFT: usize = 10;

/// The charts of one layer.
pub(super) struct Panel {
    pub(super) layer: Layer,
    /// By decision, since the start.
    pub(super) bars: Vec<Bar>,
    /// The same as a sentence.
    pub(super) told: String,
    /// By minute: what was stopped, and what the layer stood aside for.
    pub(super) columns: Vec<Column>,
    /// The highest column's count.
    pub(super) peak: u64,
    /// The same as a sentence.
    pub(super) hour_told: String,
    /// The times below the columns: where, and what.
    pub(super) times: Vec<(usize, String)>,
}

/// One bar.
pub(super) struct Bar {
    pub(super) decided: Decided,
    pub(super) count: u64,
    pub(super) y: usize,
    pub(super) width: u64,
}

/// One column: a part for each effect, from below.
pub(super) struct Column {
    pub(super) x: usize,
    pub(super) stopped: Part,
    pub(super) aside: Part,
    /// What it stands for.
    pub(super) told: String,
}

/// A part of a column.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) y: u64,
    pub(super) height: u64,
}

impl Panel {
    /// One for each layer; their bars can be compared, their columns have a scale of their own.
    pub(super) fn all(totals: &Counts, minutes: &[Minute]) -> Vec<Self> {
        let longest = totals.iter().copied().max().unwrap_or(0);
        Layer::ALL.map(|layer| Self::of(layer, totals, longest, minutes)).into()
    }

    fn of(layer: Layer, totals: &Counts, longest: u64, minutes: &[Minute]) -> Self {
        let bars = of_layer(layer).enumerate().map(|(n, decided)| {
            let count = totals[decided.index()];
            Bar { decided, count, y: n * BAR_PITCH, width: scaled(count, longest, BAR) }
        });
        let held =
            |minute: &Minute| with_effect(minute, layer, Effect::Stopped) + with_effect(minute, layer, Effect::Aside);
        let peak = minutes.iter().map(held).max().unwrap_or(0);
        let columns = minutes.iter().enumerate().filter(|(_, minute)| held(minute) > 0);
        let hour: u64 = minutes.iter().map(held).sum();
        let times = [0, 20, 40, minutes.len().saturating_sub(1)];
        Self {
            layer,
            bars: bars.collect(),
            told: in_words(totals, layer),
            columns: columns.map(|(n, minute)| Column::of(n, minute, layer, peak)).collect(),
            peak,
            hour_told: format!("{hour} within the hour, at most {peak} in one minute"),
            times: times.iter().filter_map(|n| Some((x(*n), clock(&minutes.get(*n)?.at)))).collect(),
        }
    }

    /// The height of the chart of bars.
    pub(super) fn height(&self) -> usize {
        self.bars.len() * BAR_PITCH
    }
}

impl Bar {
    /// Its colour, by the name that the style sheet has for it.
    pub(super) fn class(&self) -> &'static str {
        match self.decided.effect() {
            Effect::Passed => "passed",
            Effect::Stopped => "stopped",
            Effect::Aside => "aside",
        }
    }
}

impl Column {
    fn of(n: usize, minute: &Minute, layer: Layer, peak: u64) -> Self {
        let height = |effect| scaled(with_effect(minute, layer, effect), peak, COLUMN);
        let (stopped, aside) = (height(Effect::Stopped), height(Effect::Aside));
        Self {
            x: x(n),
            stopped: Part { y: FLOOR - stopped, height: stopped },
            aside: Part { y: (FLOOR - stopped).saturating_sub(aside), height: aside },
            told: format!("{}: {}", clock(&minute.at), in_words(&minute.counts, layer)),
        }
    }
}

fn x(n: usize) -> usize {
    LEFT + n * COLUMN_PITCH
}

fn with_effect(minute: &Minute, layer: Layer, effect: Effect) -> u64 {
    of_layer(layer).filter(|decided| decided.effect() == effect).map(|decided| minute.counts[decided.index()]).sum()
}

/// A count as a length; what happened at all can be seen.
fn scaled(count: u64, most: u64, length: u64) -> u64 {
    if count == 0 { 0 } else { (count.saturating_mul(length) / most.max(1)).clamp(SPECK, length) }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn what_happened_at_all_can_be_seen_and_nothing_is_longer_than_the_longest() {
        assert_eq!(scaled(0, 1_000_000, BAR), 0);
        assert_eq!(scaled(1, 1_000_000, BAR), SPECK);
        assert_eq!(scaled(500_000, 1_000_000, BAR), BAR / 2);
        assert!(scaled(u64::MAX, 1, BAR) <= BAR);
    }

    #[test]
    fn a_minute_has_its_column_where_something_was_stopped() {
        let mut minutes = vec![Minute { at: OffsetDateTime::UNIX_EPOCH, counts: [0; _] }; 60];
        minutes[3].counts[Decided::Accepted.index()] = 5;
        minutes[7].counts[Decided::Spent.index()] = 4;
        minutes[59].counts[Decided::Spent.index()] = 1;
        minutes[59].counts[Decided::Bypassed.index()] = 1;
        let panels = Panel::all(&[0; _], &minutes);
        let places: Vec<_> = panels[0].columns.iter().map(|c| (c.x, c.stopped.height, c.aside.height)).collect();
        assert_eq!(places, [(45, 72, 0), (305, 18, 18)]);
        assert_eq!(panels[0].peak, 4);
        assert!(panels[1].columns.is_empty());
        assert_eq!(panels[0].columns[1].told, "00:00: spent 1, bypassed 1");
    }
}
