//! The outer two layers around another form: a support ticket that is opened once, however often it is sent.
//!
//! `cargo run --example support_ticket`, then open the address it prints and press the button twice. On the embedded
//! pair: tokens in this process, records in an SQLite file. Nothing here knows of orders.
//!
//! Absent on purpose: a layer 3. It belongs to whatever keeps the result: a `UNIQUE (visitor, key)` on the table of
//! tickets, written in the transaction that completes the record. Here tickets live in a list in memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::header::{CONTENT_TYPE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use oncegate::config::Redis;
use oncegate::guard::key::{Claim, Keys};
use oncegate::guard::token::{Binding, Spend, Tokens};
use oncegate::order::values::{AccountId, Fingerprint, Key, Subject};
use oncegate::store::sqlite::{Options, Sqlite};
use oncegate::store::{Answer, ClaimRequest, RecordId, Store};
use uuid::Uuid;

/// Name of the form for layer 1, of the operation for layer 2.
const TICKET: &str = "open_ticket";
/// How long a claim is honoured without an outcome.
const LEASE: Duration = Duration::from_secs(30);

/// The help desk.
#[derive(Clone)]
struct Desk {
    tokens: Tokens,
    keys: Keys,
    opened: Arc<Mutex<Vec<String>>>,
}

#[derive(serde::Deserialize)]
struct Sent {
    form_token: String,
    idempotency_key: String,
    question: String,
}

impl Desk {
    async fn open(folder: &std::path::Path) -> Result<Self> {
        let store: Arc<dyn Store> = Arc::new(Sqlite::connect(&folder.join("desk.db"), Options::default()).await?);
        store.migrate().await?;
        let tokens = Tokens::connect(&Redis::Memory, Duration::from_secs(30 * 60)).await;
        let keys = Keys::new(store, LEASE, Duration::from_secs(24 * 60 * 60));
        Ok(Self { tokens, keys, opened: Arc::default() })
    }

    /// Each rendering has a token and a key of its own.
    async fn form(&self, visitor: Uuid, notice: &str) -> String {
        let binding = Binding { subject: Subject::visitor(visitor), form: TICKET, key: Key::fresh() };
        let token = self.tokens.issue(&binding).await;
        format!(
            "<!doctype html><title>Help desk</title><p>{notice}</p><form method=post action=/tickets>\
             <input type=hidden name=form_token value='{token}'>\
             <input type=hidden name=idempotency_key value='{}'>\
             <textarea name=question required></textarea><button>Open a ticket</button></form>",
            binding.key
        )
    }

    /// Layer 1 decides whether this submission may claim its key, layer 2 who of all that do works.
    async fn submit(self, visitor: Uuid, key: Key, token: String, question: String) -> Result<Option<Answer>> {
        let content = Fingerprint::of(1, [TICKET.as_bytes(), question.as_bytes()]);
        let id = RecordId { account: AccountId(visitor), operation: TICKET, key: key.clone() };
        let binding = Binding { subject: Subject::visitor(visitor), form: TICKET, key };
        let spend = self.tokens.spend(&token, &binding, Uuid::new_v4()).await;
        let claim = match spend {
            // Without its token store the form still works: layer 2 decides alone.
            Spend::Accepted | Spend::Bypassed => {
                let request = ClaimRequest { id, fingerprint: content };
                self.keys.claim(&[request]).await?.pop()
            }
            Spend::Spent { .. } | Spend::Unknown => self.keys.look(&id, &content).await?,
        };
        let under_way = page(409, "Your ticket is being opened: look again in a moment.");
        Ok(match claim {
            Some(Claim::Claimed(won)) => {
                let ticket = self.write_down(question);
                let answer = Answer { location: Some(format!("/tickets/{ticket}")), ..page(303, "") };
                ensure!(self.keys.complete(&won.fence, &answer).await?, "somebody else took over");
                Some(answer)
            }
            Some(Claim::Replay(answer)) => Some(answer),
            Some(Claim::InProgress { .. }) => Some(under_way),
            Some(Claim::Mismatch(_)) => Some(page(409, "This form became another ticket; nothing new was opened.")),
            // The first submission has spent the token and not yet claimed the key.
            None => matches!(spend, Spend::Spent { ago } if ago < LEASE).then_some(under_way),
        })
    }

    fn write_down(&self, question: String) -> usize {
        let mut opened = self.opened.lock().expect("nobody panics while holding it");
        opened.push(question);
        opened.len()
    }
}

fn page(status: u16, text: &'static str) -> Answer {
    Answer { status, content_type: "text/html; charset=utf-8", location: None, body: text.into(), order: None }
}

/// Who it is: a plain cookie. A shop signs it, see `web::session`.
fn visitor(headers: &HeaderMap) -> Option<Uuid> {
    let cookies = headers.get("cookie")?.to_str().ok()?;
    cookie::Cookie::split_parse(cookies).flatten().find(|c| c.name() == "visitor")?.value().parse().ok()
}

async fn show(State(desk): State<Desk>, headers: HeaderMap) -> Response {
    let visitor = visitor(&headers).unwrap_or_else(Uuid::new_v4);
    let kept = format!("visitor={visitor}; Path=/; HttpOnly; SameSite=Lax");
    ([(SET_COOKIE, kept)], Html(desk.form(visitor, "What can we do for you?").await)).into_response()
}

async fn send(State(desk): State<Desk>, headers: HeaderMap, Form(sent): Form<Sent>) -> Response {
    let (Some(visitor), Some(key)) = (visitor(&headers), Key::parse(&sent.idempotency_key)) else {
        return (StatusCode::CONFLICT, "Please open the form again.").into_response();
    };
    // In a task of its own: a client that leaves must not cut it in half.
    let work = tokio::spawn(desk.clone().submit(visitor, key, sent.form_token, sent.question));
    match work.await {
        Ok(Ok(Some(Answer { status, content_type, location, body, .. }))) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let place = location.map(|place| [(LOCATION, place)]);
            (status, [(CONTENT_TYPE, content_type)], place, body).into_response()
        }
        Ok(Ok(None)) => {
            let form = desk.form(visitor, "This form had expired and nothing was sent. Please send it again.").await;
            (StatusCode::CONFLICT, Html(form)).into_response()
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, "Not now. Sending the same again is safe.").into_response(),
    }
}

fn router(desk: Desk) -> Router {
    let ticket = async |Path(ticket): Path<usize>| Html(format!("<p>Ticket {ticket} is open.</p>"));
    Router::new()
        .route("/", get(show))
        .route("/tickets", post(send))
        .route("/tickets/{ticket}", get(ticket))
        .with_state(desk)
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, router(Desk::open(folder.path()).await?)).await?)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::extract::Request;
    use tower::ServiceExt;

    use super::*;

    /// A desk, and what a browser knows after it has shown the form.
    async fn opened_form() -> (tempfile::TempDir, Desk, String, String) {
        let folder = tempfile::tempdir().unwrap();
        let desk = Desk::open(folder.path()).await.unwrap();
        let shown = router(desk.clone()).oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
        let cookie = shown.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
        let form = String::from_utf8(to_bytes(shown.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap();
        let hidden = |name| form.split(&format!("name={name} value='")).nth(1).unwrap().split('\'').next().unwrap();
        let body = format!("form_token={}&idempotency_key={}", hidden("form_token"), hidden("idempotency_key"));
        (folder, desk, cookie, body)
    }

    async fn press(desk: &Desk, cookie: &str, body: String) -> (u16, Option<String>) {
        let request = Request::post("/tickets").header("cookie", cookie);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(Body::from(body)).unwrap();
        let answer = router(desk.clone()).oneshot(request).await.unwrap();
        let place = answer.headers().get(LOCATION).map(|place| place.to_str().unwrap().to_owned());
        (answer.status().as_u16(), place)
    }

    fn tickets(desk: &Desk) -> Vec<String> {
        desk.opened.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn a_form_sent_again_opens_no_second_ticket_and_leads_to_the_first() {
        let (_folder, desk, cookie, body) = opened_form().await;
        for _ in 0..3 {
            let answer = press(&desk, &cookie, format!("{body}&question=Where+is+it%3F")).await;
            assert_eq!(answer, (303, Some("/tickets/1".to_owned())));
        }
        assert_eq!(tickets(&desk), ["Where is it?"]);
    }

    #[tokio::test]
    async fn fifty_at_once_open_one_ticket() {
        let (_folder, desk, cookie, body) = opened_form().await;
        let presses = (0..50).map(|_| {
            let (desk, cookie, body) = (desk.clone(), cookie.clone(), format!("{body}&question=Where"));
            tokio::spawn(async move { press(&desk, &cookie, body).await })
        });
        let mut first = 0;
        for pressed in presses.collect::<Vec<_>>() {
            match pressed.await.unwrap() {
                (303, Some(place)) if place == "/tickets/1" => first += 1,
                answer => assert_eq!(answer, (409, None)),
            }
        }
        assert!(first >= 1);
        assert_eq!(tickets(&desk).len(), 1);
    }

    #[tokio::test]
    async fn a_changed_question_under_the_same_key_opens_nothing() {
        let (_folder, desk, cookie, body) = opened_form().await;
        press(&desk, &cookie, format!("{body}&question=One")).await;
        assert_eq!(press(&desk, &cookie, format!("{body}&question=Two")).await, (409, None));
        assert_eq!(tickets(&desk), ["One"]);
    }

    #[tokio::test]
    async fn without_its_token_store_a_repeat_still_finds_the_first() {
        let (_folder, mut desk, cookie, body) = opened_form().await;
        press(&desk, &cookie, format!("{body}&question=One")).await;
        desk.tokens = Tokens::connect(&Redis::Memory, Duration::from_secs(60)).await;
        let answer = press(&desk, &cookie, format!("{body}&question=One")).await;
        assert_eq!(answer, (303, Some("/tickets/1".to_owned())));
        assert_eq!(tickets(&desk).len(), 1);
    }
}
