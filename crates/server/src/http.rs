//! The HTTP port: `GET /_up` for probes, `GET /metrics` for Prometheus, `/_backup` for `sheaf backup`.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use commands::Host;
use tokio::net::TcpListener;

use crate::{backup, host::ServerHost, metrics};

/// Serves until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, host: Arc<ServerHost>) {
    let routes = Router::new().route("/_up", get(up)).route("/metrics", get(metrics_text));
    let service = routes
        .merge(backup::routes::routes(host.clone()))
        .with_state(host)
        .into_make_service_with_connect_info::<SocketAddr>();
    if let Err(error) = axum::serve(listener, service).await {
        tracing::error!(target: "server", %error, "the HTTP port failed");
    }
}

/// As CouchDB: 200 `{"status":"ok"}` when requests are served; 404 with the reason and progress when not.
async fn up(State(host): State<Arc<ServerHost>>) -> impl IntoResponse {
    let json = [(header::CONTENT_TYPE, "application/json")];
    if let Some(loading) = host.loading() {
        let (done, total) = host.progress.bytes();
        let eta = loading.eta_seconds.map_or("null".into(), |seconds| format!("{seconds:.1}"));
        let body = format!(
            "{{\"status\":\"loading\",\"percent\":{:.1},\"eta_seconds\":{eta},\"bytes\":{done},\"total_bytes\":{total}}}\n",
            loading.percent
        );
        return (StatusCode::NOT_FOUND, json, body);
    }
    let failed = host.log().is_some_and(|log| log.poison_reason().is_some());
    let (status, body) = if failed { (StatusCode::NOT_FOUND, "failed") } else { (StatusCode::OK, "ok") };
    (status, json, format!("{{\"status\":\"{body}\"}}\n"))
}

async fn metrics_text(State(host): State<Arc<ServerHost>>) -> impl IntoResponse {
    match metrics::render(&host) {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], String::new()),
    }
}
