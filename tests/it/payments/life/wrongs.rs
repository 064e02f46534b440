//! Who may not, what is not there, what cannot be read, and in which order that is said.

use serde_json::{Value, json};

use super::super::{PATIENT, cups, is, now, paid, shown};
use super::Cast;

#[tokio::test]
async fn only_an_operator_ships_and_only_its_owner_cancels_or_pays() {
    let cast = Cast::open(&[], PATIENT).await;
    let (at, ben) = (cast.service.main, cast.shop.site.client("ben").await);
    let order = paid(&cast.anna, at, "k", &cups(1)).await;
    for client in [&cast.anna, &ben] {
        let seen = client.ship(at, &order).await;
        assert_eq!((seen.status, seen.problem().as_str()), (403, "forbidden"), "{seen:?}");
    }
    for what in ["cancel", "pay"] {
        let seen = ben.wish(at, &order, what, "k", None).await;
        assert_eq!((seen.status, seen.problem().as_str()), (404, "not-found"), "{seen:?}");
        let unknown = cast.anna.wish(at, &uuid::Uuid::now_v7().to_string(), what, "k", None).await;
        assert_eq!(unknown.status, 404);
    }
    assert_eq!(cast.operator.ship(at, &uuid::Uuid::now_v7().to_string()).await.status, 404);
    assert_eq!(now(&cast.anna, at, &order).await, is(200, "paid", "card", "captured"));
    let shipped = cast.operator.ship(at, &order).await;
    assert_eq!(shown(&shipped), is(200, "shipped", "card", "captured"), "{shipped:?}");
    cast.shop.holds().await;
}

#[tokio::test]
async fn of_several_wrongs_of_a_wish_the_first_in_the_order_of_the_contract_is_answered() {
    let cast = Cast::open(&[], PATIENT).await;
    let at = cast.service.main;
    let order = cast.order_that_is("pending", "k").await;
    let http = crate::harness::http().build().unwrap();
    let stranger = uuid::Uuid::now_v7().to_string();
    let json_type = Some("application/json");
    let mut checked = 0;
    for what in ["cancel", "pay"] {
        for (status, name, id, token, key, media, body) in [
            (401, "unauthenticated", &stranger, false, None, None, "{"),
            (404, "not-found", &stranger, true, None, None, "{"),
            (400, "idempotency-key-missing", &order, true, None, Some("text/plain"), "{"),
            (400, "idempotency-key-malformed", &order, true, Some("a b"), Some("text/plain"), "{"),
            (415, "unsupported-media-type", &order, true, Some("a"), Some("text/plain"), "{"),
            (415, "unsupported-media-type", &order, true, Some("a"), None, "{"),
            (415, "unsupported-media-type", &order, true, Some("a"), None, r#"{"payment":"card"}"#),
            (415, "unsupported-media-type", &order, true, Some("a"), Some("text/plain"), "{}"),
            (400, "malformed-request", &order, true, Some("a"), json_type, "{"),
            (400, "malformed-request", &order, true, Some("a"), json_type, r#"{"x":1,"x":1}"#),
            (422, "validation-failed", &order, true, Some("a"), json_type, "[]"),
            (422, "validation-failed", &order, true, Some("a"), json_type, "null"),
            (422, "validation-failed", &order, true, Some("a"), json_type, r#"{"note":"x"}"#),
            (422, "validation-failed", &order, true, Some("a"), json_type, r#"{"payment":7}"#),
            (422, "validation-failed", &order, true, Some("a"), json_type, r#"{"payment":"gold"}"#),
        ] {
            let mut request = http.post(format!("http://{at}/api/orders/{id}/{what}")).body(body);
            if token {
                request = request.bearer_auth(cast.anna.token());
            }
            for (header, value) in [("idempotency-key", key), ("content-type", media)] {
                if let Some(value) = value {
                    request = request.header(header, value);
                }
            }
            let answer = request.send().await.unwrap();
            let (seen, problem) = (answer.status(), answer.json::<Value>().await.unwrap());
            assert_eq!(
                (seen.as_u16(), &problem["type"]),
                (status, &json!(format!("/problems/{name}"))),
                "{what} {body}"
            );
            checked += 1;
        }
    }
    assert_eq!((checked, cast.shop.count("FROM idempotency_records WHERE operation <> 'place_order'").await), (30, 0));
    let large = http.post(format!("http://{at}/api/orders/{order}/cancel")).bearer_auth(cast.anna.token());
    let large =
        large.header("idempotency-key", "a").header("content-type", "application/json").body(vec![b' '; 70_000]);
    assert_eq!(large.send().await.unwrap().status(), 413);
    for (method, path, client, status) in [
        ("GET", format!("{order}/cancel"), &cast.anna, 405),
        ("PUT", format!("{order}/pay"), &cast.anna, 405),
        ("GET", format!("{stranger}/pay"), &cast.anna, 404),
        ("GET", format!("{order}/ship"), &cast.anna, 403),
        ("GET", format!("{order}/ship"), &cast.operator, 405),
        ("GET", format!("{stranger}/ship"), &cast.operator, 404),
        ("POST", format!("{order}/burn"), &cast.anna, 404),
    ] {
        let request = http.request(method.parse().unwrap(), format!("http://{at}/api/orders/{path}"));
        assert_eq!(request.bearer_auth(client.token()).send().await.unwrap().status(), status, "{method} {path}");
    }
    // An empty body needs no media type, whatever a client adds by itself; nor does an empty object.
    for (n, (media, body)) in
        [(None, ""), (None, "{}"), (None, " {} "), (Some("application/x-www-form-urlencoded"), ""), (json_type, "")]
            .into_iter()
            .enumerate()
    {
        let mut request = http.post(format!("http://{at}/api/orders/{order}/cancel")).bearer_auth(cast.anna.token());
        request = request.header("idempotency-key", format!("c{n}")).body(body);
        if let Some(media) = media {
            request = request.header("content-type", media);
        }
        assert_eq!(request.send().await.unwrap().status(), 200, "{media:?} {body:?}");
    }
    cast.shop.holds().await;
}
