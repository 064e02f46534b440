# 买家看到的文字，简体中文。每种语言一个文件；条目与 `en.ftl` 一一对应，顺序相同。
#
# 语法：Project Fluent。{ $花括号 } 里的内容由店铺填入；`->` 按数字选择。尖括号里的标记各语言必须一致，
# 但可以放在句中任何位置。每条一行。

# --- 每一页 ---

skip = 跳到正文
shop = 店铺
nav-order = 下单
nav-orders = 我的订单
foot = 不管按多少次按钮，每份订单都只会下一次。
# 下单时间；时、分各两位，月为 1 到 12。
moment = { $year }年{ $month }月{ $day }日 { $hour }:{ $minute }（UTC）

# --- 订单表单 ---

form-title = 下单
form-title-not-ordered = 尚未下单
form-goods = 想买点什么？
form-no-goods = 目前没有在售的商品。
form-stock = 库存 { $count } 件
form-sold-out = 已售罄
form-price-unknown = 暂时查不到价格和库存
form-payment = 怎么付款？
form-by-balance = 用余额付款
form-balance = （{ $amount }）
form-by-card = 银行卡付款
form-note = 给店家留言
form-optional = （选填）
form-note-limit = 最多 500 字。
form-total = 合计
form-place = 提交订单
form-place-again = 是的，再下一单
form-stop = 停止重试
form-sending = 正在提交订单……
form-trying = 还没有收到回应，正在重试。请放心，不会重复下单。
form-stopped = 已停止。订单可能已经送到，也可能没有。想确认的话，再提交一次即可，不会重复下单。
form-failed = 连不上店铺。您填写的内容都还在，请稍后再提交一次，不会重复下单。

# --- 某一栏哪里不对：写在页首的 `complaint` 里，也写在该栏下方 ---

complaint = <a href="{ $url }">{ $field }</a>：{ $fault }
field-payment = 付款方式
field-note = 留言
field-goods = 商品
fault-missing = 没有填写
fault-repeated = 重复提交了
fault-unknown = 没有这一栏
fault-unreadable = 无法识别
fault-not-whole = 请只用数字填写一个整数
fault-range = 请填写 { $min } 到 { $max } 之间的数
fault-nothing = 请至少选择一件商品
fault-not-offered = 本店不提供
fault-mixed-currency = 同一订单里的商品必须使用同一种货币
fault-out-of-stock = 库存不足
fault-not-sold = 本店没有这件商品，或已下架
fault-balance = 请选择余额付款
fault-balance-or-card = 请选择余额或银行卡付款
fault-products = 一次最多购买 { $max } 种商品
fault-total = 总额不能超过 { $max }（以最小货币单位计）
fault-note = 最多 { $max } 字，不能含有制表符和换行以外的控制字符

# --- 为什么又回到表单 ---

invalid-title = 有几处需要修改
invalid = 还没有下单。请修改以下内容，然后重新提交：
expired-title = 这张表单已过期
expired = 没有下单。您填写的内容都还在，请核对后重新提交。
interrupted-title = 下单中断了
interrupted = 这张表单之前提交过，但没有下单成功。您填写的内容都还在，请重新提交。
nothing-came-of-it = 没有下单。如果还想购买，请重新填写表单。
used-title = 这张表单已经用过了
became-order = 它已经成为<a href="{ $url }">订单 { $order }</a>。您这次提交的内容不同，所以没有再下新单。如果也想购买，请按下方按钮提交。
was-refused = 第一次提交没有被接受，而您这次提交的内容不同。没有下单。如果想购买，请按下方按钮提交。
being-placed-title = 您的第一份订单还在处理
being-placed = 您可以<a href="{ $url }">在这里查看进度</a>。您这次提交的内容不同，没有下单。如果也想购买，请按下方按钮提交。
repeat-title = 要再买一份一样的吗？
repeat = { $seconds } 秒前您刚下过一模一样的单（<a href="{ $url }">订单 { $order }</a>）。没有再下新单。要再下一单吗？如果要，请按下方按钮提交。
out-of-stock-title = 部分商品库存不足
out-of-stock = 没有下单。请修改数量，然后重新提交：
not-sold-title = 部分商品本店没有
not-sold = 没有下单。请去掉以下商品，然后重新提交：
too-dear-title = 余额不足
too-dear = 余额不够支付总额，所以没有下单。请减少一些商品。
too-dear-but-card = 余额不够支付总额，所以没有下单。请减少一些商品，或改用银行卡付款。
refused-title = 订单没有被接受
refused = 没有下单。
later-title = 店铺暂时没有回应
later = 您填写的内容都还在。请过几秒再提交，不会重复下单。
failed-title = 我们这边出了点问题
failed = 您填写的内容都还在。可以再提交一次，不会重复下单。

# --- 订单处理中 ---

waiting-title = 正在提交您的订单
waiting = 这次比平时要久一点。本页每秒刷新一次，订单一完成就会显示。
waiting-leave = 您什么都不用做，也不用再次下单。如果离开本页，之后可以在<a href="/orders">我的订单</a>里找到它。

# --- 一份订单 ---

order-title = 订单 { $order }
order-placed = 下单时间：<time datetime="{ $iso }">{ $moment }</time>
order-lines = 购买的商品
order-goods = 商品
order-quantity = 数量
order-sum = 小计
order-each = 单价 { $amount }，{ $sku }
order-total = 合计
order-payment = 付款
order-coupon = 优惠券
order-welcome = 欢迎再来：<code>{ $coupon }</code>
order-reference = 您的参考号
order-note = 留言
order-number = 订单号
order-pay = 支付这份订单
order-pay-button = 支付 { $amount }
order-cancel = 取消这份订单
order-another = 再买点别的
state-pending = 待付款
state-paid = 已付款
state-shipped = 已发货
state-cancelled = 已取消
method-balance = 余额付款：{ $payment }
method-card = 银行卡付款：{ $payment }
payment-started = 尚未完成
payment-unknown = 支付机构还没有答复，我们会继续查询
payment-processing = 支付机构正在处理
payment-declined = 被拒绝，没有扣款
payment-captured = 已付款
payment-refund-due = 待退款
payment-refunded = 已退款

# --- 订单发生了什么 ---

said-paid-title = 付款成功
said-paid = 您的订单已付款，谢谢惠顾。
said-cancelled-title = 已取消
said-cancelled = 您的订单已取消。
said-refund-due = 您付的款正在退回。
said-refunded = 您付的款已经退回。
said-not-charged = 没有扣款。
said-perhaps-paid = 如果之后仍有款项到账，会退还给您。
said-declined-title = 银行卡被拒绝
said-declined = 没有扣款。您的订单已保留，等待付款：可以在下方付款，也可以取消。
said-funds-title = 余额不足
said-funds = 余额不够支付总额，所以没有扣款。您的订单已保留，等待付款。
said-illegal-title = 现在已经不能这样做了
said-illegal = 订单的状态已不允许这项操作。什么都没有改变，当前状态见下方。
said-asking-title = 正在向支付机构查询
said-asking = 支付机构还没有告知付款结果。您什么都不用做：一有结果订单就会完成，最多只扣款一次。
said-under-way-title = 还在处理
said-under-way = 这次付款，或这份订单的另一次付款，正在处理。您什么都不用做。
said-used-title = 这张表单已经用过了
said-used = 它已用于别的操作，所以这次什么都没有改变。
said-expired-title = 这张表单已过期
said-expired = 什么都没有改变。如果仍想操作，请在本页再试一次。
said-wrong-title = 请选择付款方式
said-wrong = 没有扣款。请在下方选择一种付款方式。
said-silent-title = 店铺没有及时回应
said-silent = 下方是订单现在的状态。可以放心再试：不会重复扣款，也不会重复退款。
said-look-again = 再看一下

# --- 订单列表 ---

list-title = 我的订单
list-empty = 您还没有买过东西。
list-no-older = 没有更早的订单了。
list-order-something = 去买点东西
list-order = 订单 { $order }
list-pages = 翻页
list-newest = 最新订单
list-older = 更早的订单

# --- 只说一件事的页面 ---

message-not-found-title = 找不到页面
message-not-found = 这里什么也没有，或者不属于您。如果您在找一份订单：这个浏览器可能已经不记得您是谁了。
message-not-done = 没有完成
message-method-title = 这里不能这样操作
message-method = 地址没有错，但它不接受这种请求。
message-foreign-title = 来自其他网站
message-foreign = 这张表单不是从本店的页面提交的，所以什么都没有做。请从这里开始：
message-no-form-title = 不是表单
message-no-form = 提交的内容不是本店的表单，所以什么都没有做。
message-too-large-title = 内容太大
message-too-large = 提交的内容比本店任何表单都大，所以什么都没有做。
message-broken-title = 无法读取
message-broken = 提交的内容已损坏，无法读取，所以什么都没有做。
message-cursor-title = 没有这一页
message-cursor = 地址里的 <code>cursor</code> 不是本店给出的。
message-later = 暂时没有回应
message-later-title = 店铺暂时没有回应
message-later-text = 请过几秒再试。什么都没有丢失，也不会重复下单。
message-internal-title = 我们这边出了点问题
message-internal = 请再试一次。不会重复下单。
message-to-form = 去下单
