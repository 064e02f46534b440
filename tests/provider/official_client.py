#!/usr/bin/env python3
"""The stand-in and the callback, held against the provider's official client (PyPI: stripe).

scripts/test runs it. By hand, with the packages of requirements.txt: official_client.py target/debug/oncegate
Starts a stand-in and a service of its own on free ports of 127.0.0.1, and ends them.
"""

import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import stripe

KEY, SECRET = "sk_test_of_this_check", "whsec_of_this_check"
ORDER = {"lines": [{"sku": "CUP-STONE", "quantity": 2}], "payment": "card"}


def start(arguments, env, folder):
    """Starts a process and answers it with the address that it names."""
    process = subprocess.Popen(arguments, env=env, cwd=folder, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if found := re.search(r"listening on (http://\S+)", line):
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, found.group(1)
    raise SystemExit(f"{arguments} ended before it listened")


def listen():
    """Receives callbacks, for the client to verify."""
    received = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((body, self.headers["stripe-signature"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return received, f"http://127.0.0.1:{server.server_port}/"


def intents(gateway):
    """Creates, repeats, declines, retrieves and refunds."""
    client = stripe.StripeClient(KEY, base_addresses={"api": gateway}, max_network_retries=0)
    create = client.v1.payment_intents.create
    paid = {"amount": 1200, "currency": "eur", "confirm": True, "payment_method": "pm_card_visa"}
    first = create(params=paid, options={"idempotency_key": "once"})
    assert (first.status, first.amount) == ("succeeded", 1200), first
    assert create(params=paid, options={"idempotency_key": "once"}).id == first.id
    try:
        create(params={**paid, "amount": 1300}, options={"idempotency_key": "once"})
        raise SystemExit("other parameters were taken under the same key")
    except stripe.IdempotencyError as error:
        assert error.http_status == 400, error
    try:
        create(params={**paid, "payment_method": "pm_card_chargeDeclined"})
        raise SystemExit("the card was not declined")
    except stripe.CardError as error:
        assert (error.http_status, error.code) == (402, "card_declined"), error
    assert client.v1.payment_intents.retrieve(first.id).status == "succeeded"
    assert client.v1.refunds.create(params={"payment_intent": first.id}).status == "succeeded"


def verifies(received):
    """The client verifies the stand-in's signatures: two outcomes and a refund, and not under another secret."""
    deadline = time.monotonic() + 10
    while len(received) < 3:
        assert time.monotonic() < deadline, received
        time.sleep(0.02)
    kinds = {stripe.Webhook.construct_event(body, header, SECRET).type for body, header in received}
    assert kinds == {"payment_intent.succeeded", "payment_intent.payment_failed", "charge.refunded"}, kinds
    try:
        stripe.Webhook.construct_event(*received[0], "whsec_other")
        raise SystemExit("a signature was taken under another secret")
    except stripe.SignatureVerificationError:
        pass


def post(address, body, headers):
    request = urllib.request.Request(address, body, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer) if answer.headers["content-length"] != "0" else None
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def callback(service, token):
    """A header that the client generates is accepted, and one of another secret refused."""
    status, order = post(f"{service}/api/orders", json.dumps(ORDER).encode(), {
        "authorization": f"Bearer {token}", "idempotency-key": "k"})
    assert (status, order["status"]) == (201, "paid"), order
    intent = {"id": "pi_unasked", "amount": order["total"], "currency": "eur", "metadata": {"order_id": order["id"], "attempt": "1"}}
    body = json.dumps({"id": "evt_1", "type": "payment_intent.processing", "data": {"object": intent}})
    for secret, expected in [(SECRET, 200), (SECRET, 200), ("whsec_other", 400)]:
        now = int(time.time())
        signature = stripe.WebhookSignature._compute_signature(f"{now}.{body}", secret)
        status, told = post(f"{service}/api/payments/callback", body.encode(), {"stripe-signature": f"t={now},v1={signature}"})
        assert status == expected, (status, told)


def main():
    program = os.path.abspath(sys.argv[1])
    received, url = listen()
    with tempfile.TemporaryDirectory() as folder:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("ONCEGATE_") and name not in ("DATABASE_URL", "REDIS_URL")}
        gateway, at = start([program, "gateway", "--listen", "127.0.0.1:0", "--key", KEY, "--webhook-secret", SECRET, "--callback-url", url], plain, folder)
        env = {**plain, "ONCEGATE_LISTEN": "127.0.0.1:0", "ONCEGATE_OPS_LISTEN": "127.0.0.1:0", "ONCEGATE_GATEWAY_URL": at,
               "ONCEGATE_GATEWAY_KEY": KEY, "ONCEGATE_GATEWAY_WEBHOOK_SECRET": SECRET}
        service, shop = start([program], env, folder)
        try:
            intents(at)
            verifies(received)
            token = subprocess.run([program, "token", "--sub", "ann"], env=env, cwd=folder, check=True, capture_output=True, text=True)
            callback(shop, token.stdout.strip())
        finally:
            for process in (service, gateway):
                process.terminate()
                process.wait(30)
    print("the official client and the stand-in understand each other")


main()
