# What buyers read, in English. One file a language; `zh.ftl` has the same messages in the same order.
#
# Syntax: Project Fluent. What stands in { $braces } is put in by the shop; `->` chooses by a number. Markup in angle
# brackets must be the same in every language, but its words may stand anywhere in the sentence. One line a message.

# --- every page ---

skip = Skip to the content
shop = Shop
nav-order = Order
nav-orders = Your orders
foot = Every order is placed once, however often you press the button.
# When an order was placed; hour and minute have two digits, month is 1 to 12.
moment = { $day } { $month ->
        [1] Jan
        [2] Feb
        [3] Mar
        [4] Apr
        [5] May
        [6] Jun
        [7] Jul
        [8] Aug
        [9] Sep
        [10] Oct
        [11] Nov
       *[12] Dec
    } { $year }, { $hour }:{ $minute } UTC

# --- the order form ---

form-title = Order
form-title-not-ordered = Not ordered: Order
form-goods = What would you like?
form-no-goods = There is nothing on offer at the moment.
form-stock = { $count } in stock
form-sold-out = sold out
form-price-unknown = price and stock not known just now
form-payment = How would you like to pay?
form-by-balance = From your balance
form-balance = ({ $amount })
form-by-card = By card
form-note = Note to the shop
form-optional = (optional)
form-note-limit = At most 500 characters.
form-total = Total
form-place = Place order
form-place-again = Yes, order again
form-stop = Stop trying
form-sending = Your order is being placed…
form-trying = No answer so far. Still trying: your order cannot be placed twice.
form-stopped = Stopped. Perhaps the order arrived, perhaps not. To find out, send the form again: it cannot be ordered twice.
form-failed = There is no connection to the shop. What you entered is still here. Send it again later: it cannot be ordered twice.

# --- what is wrong with a field: in `complaint` at the head of the page, and below the field itself ---

complaint = <a href="{ $url }">{ $field }</a>: { $fault }
field-payment = Payment
field-note = Note
field-goods = Goods
fault-missing = is missing
fault-repeated = was sent more than once
fault-unknown = is not a known field
fault-unreadable = cannot be read
fault-not-whole = must be a whole number, digits only
fault-range = must be between { $min } and { $max }
fault-nothing = choose at least one product
fault-not-offered = is not offered here
fault-mixed-currency = cannot mix goods of several currencies in one order
fault-out-of-stock = is not in stock in this quantity
fault-not-sold = is not sold here (any more)
fault-balance = must be balance
fault-balance-or-card = must be balance or card
fault-products = must be of at most { $max } different products
fault-total = must be worth at most { $max } minor units in total
fault-note = must be at most { $max } characters long, with no control characters but tabs and line breaks

# --- why the form is there again ---

invalid-title = Something needs to be corrected
invalid = Nothing was ordered yet. Please correct this and send the form again:
expired-title = This form had expired
expired = Nothing was ordered. What you entered is still here: please check it and send it again.
interrupted-title = Your order was interrupted
interrupted = The form was sent before, but nothing was ordered. What you entered is still here: please send it again.
nothing-came-of-it = Nothing was ordered. If you still want to order, please fill in the form again.
used-title = This form was already used
became-order = It became <a href="{ $url }">order { $order }</a>. What you sent now is different, so nothing new was ordered. To order it as well, send it with the button below.
was-refused = Its first submission was refused, and what you sent now is different. Nothing was ordered. To order it, send it with the button below.
being-placed-title = Your first order is still being placed
being-placed = You can <a href="{ $url }">watch it here</a>. What you sent now is different and was not ordered. To order it as well, send it with the button below.
repeat-title = Order the same again?
repeat = You ordered exactly this { $seconds } { $seconds ->
        [one] second
       *[other] seconds
    } ago (<a href="{ $url }">order { $order }</a>). Nothing new was ordered. Do you want to order it again? If so, send it with the button below.
out-of-stock-title = Not everything is in stock
out-of-stock = Nothing was ordered. Please change the quantities and send the form again:
not-sold-title = Not everything is sold here
not-sold = Nothing was ordered. Please take this out and send the form again:
too-dear-title = Your balance is too low
too-dear = It does not cover the total, so nothing was ordered. Please order less.
too-dear-but-card = It does not cover the total, so nothing was ordered. Please order less or pay by card.
refused-title = This order was refused
refused = Nothing was ordered.
later-title = The shop is not answering just now
later = What you entered is still here. Please send it again in a few seconds: it cannot be ordered twice.
failed-title = Something went wrong on our side
failed = What you entered is still here. You can send it again: it cannot be ordered twice.

# --- an order under way ---

waiting-title = Your order is being placed
waiting = This takes a moment longer than usual. The page looks again every second and shows your order as soon as it is there.
waiting-leave = You need not do anything, and need not order again. If you leave, you will find it under <a href="/orders">your orders</a>.

# --- an order ---

order-title = Order { $order }
order-placed = Placed <time datetime="{ $iso }">{ $moment }</time>
order-lines = What was ordered
order-goods = Goods
order-quantity = Quantity
order-sum = Sum
order-each = { $amount } each, { $sku }
order-total = Total
order-payment = Payment
order-coupon = Coupon
order-welcome = Welcome back: <code>{ $coupon }</code>
order-reference = Your reference
order-note = Note
order-number = Order number
order-pay = Pay this order
order-pay-button = Pay { $amount }
order-cancel = Cancel this order
order-another = Order something else
state-pending = Waiting for payment
state-paid = Paid
state-shipped = Shipped
state-cancelled = Cancelled
method-balance = from your balance: { $payment }
method-card = by card: { $payment }
payment-started = not finished yet
payment-unknown = the payment provider has not answered yet; we keep asking
payment-processing = the payment provider is working on it
payment-declined = declined, nothing was charged
payment-captured = paid
payment-refund-due = to be paid back
payment-refunded = paid back

# --- what happened to an order ---

said-paid-title = Paid
said-paid = Your order is paid. Thank you.
said-cancelled-title = Cancelled
said-cancelled = Your order is cancelled.
said-refund-due = What you paid is being paid back.
said-refunded = What you paid was paid back.
said-not-charged = Nothing was charged.
said-perhaps-paid = Should a payment still come through, it is paid back.
said-declined-title = The card was declined
said-declined = Nothing was charged. Your order stands and waits to be paid: pay it below, or cancel it.
said-funds-title = Your balance is too low
said-funds = It does not cover the total, so nothing was paid. Your order stands and waits to be paid.
said-illegal-title = That is not possible any more
said-illegal = The order is past the point where this can be done. Nothing was changed; below is how it stands.
said-asking-title = We are asking the payment provider
said-asking = It has not said yet what became of your payment. You need not do anything: your order is finished as soon as it does, and it is charged once at most.
said-under-way-title = Still being worked on
said-under-way = This, or another payment of the order, is under way. You need not do anything.
said-used-title = This form was already used
said-used = It was used for something else, so nothing was changed this time.
said-expired-title = This form had expired
said-expired = Nothing was changed. If you still want to, please try again from this page.
said-wrong-title = Please choose how to pay
said-wrong = Nothing was paid. Please choose one of the ways below.
said-silent-title = The shop did not answer in time
said-silent = Below is how the order stands now. You can safely try again: nothing is charged or paid back twice.
said-look-again = Look again

# --- the list ---

list-title = Your orders
list-empty = You have not ordered anything yet.
list-no-older = There are no older orders.
list-order-something = Order something
list-order = Order { $order }
list-pages = Pages
list-newest = Newest orders
list-older = Older orders

# --- pages that only say something ---

message-not-found-title = Not found
message-not-found = There is nothing here, or nothing that belongs to you. If you expected an order: this browser may have forgotten who you are.
message-not-done = Not done
message-method-title = This cannot be done here
message-method = The address is right, but it does not take this kind of request.
message-foreign-title = Sent from another site
message-foreign = This form was not sent from a page of this shop, so nothing was done. Please start here:
message-no-form-title = Not a form
message-no-form = What was sent is not a form of this shop, so nothing was done.
message-too-large-title = Too large
message-too-large = What was sent is larger than any form of this shop, so nothing was done.
message-broken-title = Not readable
message-broken = What was sent is damaged and cannot be read, so nothing was done.
message-cursor-title = No such page
message-cursor = The part <code>cursor</code> of this address is not one of ours.
message-later = Not answering just now
message-later-title = The shop is not answering just now
message-later-text = Please try again in a few seconds. Nothing was lost, and nothing can be ordered twice.
message-internal-title = Something went wrong on our side
message-internal = Please try again. Nothing can be ordered twice.
message-to-form = To the order form
