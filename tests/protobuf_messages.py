"""Messages that tests write: classes as protoc makes them, made without protoc."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

FIELD = descriptor_pb2.FieldDescriptorProto


def _field(message, name, number, kind, *, type_name=None):
    field = message.field.add(name=name, number=number, type=kind, label=FIELD.LABEL_OPTIONAL)
    if type_name is not None:
        field.type_name = type_name


def _files():
    address = descriptor_pb2.FileDescriptorProto(
        name="ottla_tests/address.proto", package="shop", syntax="proto3"
    )
    _field(address.message_type.add(name="Address"), "city", 1, FIELD.TYPE_STRING)
    order = descriptor_pb2.FileDescriptorProto(
        name="ottla_tests/order.proto", package="shop", syntax="proto3"
    )
    order.dependency.extend([address.name, timestamp_pb2.DESCRIPTOR.name])
    _field(order.message_type.add(name="Other"), "x", 1, FIELD.TYPE_STRING)
    message = order.message_type.add(name="Order")
    _field(message, "id", 1, FIELD.TYPE_INT64)
    _field(message, "to", 2, FIELD.TYPE_MESSAGE, type_name=".shop.Address")
    _field(message, "at", 3, FIELD.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    _field(message.nested_type.add(name="First"), "a", 1, FIELD.TYPE_INT32)
    _field(message.nested_type.add(name="Line"), "count", 1, FIELD.TYPE_INT32)
    return address, order


def _made():
    pool = descriptor_pool.Default()
    for each in _files():
        pool.Add(each)
    names = ("shop.Address", "shop.Other", "shop.Order", "shop.Order.Line")
    find = pool.FindMessageTypeByName
    return [message_factory.GetMessageClass(find(name)) for name in names]


Address, Other, Order, Line = _made()
