//! What a report says of evolutionary searches.

use crate::{output::say, units};
use bricolage::report::Report;

/// The lines about them.
pub(crate) fn print(report: &Report) {
    for e in &report.evolutions {
        let Some(engine) = &e.engine else {
            say!("evolution  none: no graph engine is here; the op level decides");
            continue;
        };
        let time = |ns: Option<f64>| ns.map_or_else(|| "none".to_owned(), units::time);
        say!(
            "evolution  {} of {} regions may go to {engine}; {} plans in {} generations and {:.1} s, {} of them \
             failed",
            e.genes,
            e.groups,
            e.individuals,
            e.generations,
            e.seconds,
            e.failed
        );
        say!(
            "           op level {}, all on {engine} {}, best {} after {:.1} s",
            time(e.op_level_ns),
            time(e.engine_ns),
            time(e.best_ns),
            e.best_after_s
        );
        if let Some(why) = &e.why {
            say!("           the last that failed: {why}");
        }
    }
}
