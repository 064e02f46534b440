//! The numbers for `/metrics`, in the text format of Prometheus.

use std::sync::OnceLock;
use std::time::Duration;

use axum::http::Method;
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::guard::activity;
use crate::guard::decided::Decided;

/// Decisions of the three layers (`guard::count`).
const DECISIONS: &str = "oncegate_layer_decisions_total";
/// Answers.
const REQUESTS: &str = "oncegate_http_requests_total";
/// How long they took.
const SECONDS: &str = "oncegate_http_request_duration_seconds";
/// Upper bounds in seconds: from a replay to the longest that a silent dependency is waited for.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Starts counting. What was counted before is lost.
pub(super) fn start() {
    handle();
    activity::start();
}

/// The process's numbers.
pub(super) fn handle() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(SECONDS.to_owned()), &BUCKETS)
            .expect("there are buckets");
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("something else counts already; /metrics stays empty");
        }
        describe();
        handle
    })
}

fn describe() {
    describe_counter!(DECISIONS, "What the three layers against double orders decided.");
    describe_counter!(REQUESTS, "Answers by route, method and status.");
    describe_histogram!(SECONDS, Unit::Seconds, "Time to answer by route and method.");
    // A dashboard is to show a decision that has not happened yet as 0, not as missing.
    for decided in Decided::ALL {
        let (layer, decision) = (decided.layer().as_str(), decided.as_str());
        counter!(DECISIONS, "layer" => layer, "decision" => decision).increment(0);
    }
}

/// Counts one answer. `route` is the pattern, never the path: strangers must not be able to add names.
pub(super) fn answered(route: &str, method: &Method, status: u16, took: Duration) {
    let route = route.to_owned();
    let method = known(method);
    counter!(REQUESTS, "route" => route.clone(), "method" => method, "status" => status.to_string()).increment(1);
    histogram!(SECONDS, "route" => route, "method" => method).record(took);
}

fn known(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|m| *m == method.as_str()).unwrap_or("other")
}
