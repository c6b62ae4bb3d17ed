"""Compares the SDK's own messages with our schema, number by number. Argument: `agent.proto`.

Needs no engine. Names may differ, numbers and types may not.
"""

import json
import re
import sys

from google.protobuf.descriptor import FieldDescriptor
from rstream._proto import rstream_pb2

SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_FIXED32: "fixed32",
    FieldDescriptor.TYPE_ENUM: "ErrorCode",
}
# Names that the SDK nests or spells differently.
NAMES = {"Ok": "ControlChannelOk", "LabelsEntry": "map<string, string>"}


def theirs():
    def fields(message):
        found = {}
        for field in message.fields:
            kind = SCALARS.get(field.type) or field.message_type.name
            kind = NAMES.get(kind, kind)
            repeated = field.is_repeated and not kind.startswith("map")
            found[field.number] = f"repeated {kind}" if repeated else kind
        return found

    messages = {}
    for name, message in rstream_pb2.DESCRIPTOR.message_types_by_name.items():
        messages[name] = fields(message)
        for nested in message.nested_types:
            if nested.name in NAMES and not nested.GetOptions().map_entry:
                messages[NAMES[nested.name]] = fields(nested)
    enum = rstream_pb2.DESCRIPTOR.enum_types_by_name["ErrorCode"]
    messages["ErrorCode"] = {
        value.number: value.name.removeprefix("ERROR_CODE_") for value in enum.values
    }
    return messages


def ours(path):
    messages, current = {}, None
    for line in open(path, encoding="utf-8"):
        if begin := re.match(r"(?:message|enum) (\w+)", line):
            current = messages.setdefault(begin[1], {})
        elif member := re.match(r"\s+(?:(.+) )?(\w+) = (\d+);", line):
            kind, name, number = member[1], member[2], int(member[3])
            current[number] = kind.replace("google.protobuf.", "") if kind else name
    return messages


our_messages = ours(sys.argv[1])
their_messages = theirs()
differences = [
    f"{name} {number}: theirs {kind}, ours {our_messages.get(name, {}).get(number)}"
    for name, members in their_messages.items()
    for number, kind in members.items()
    if our_messages.get(name, {}).get(number) != kind
]
additions = [
    f"{name} {number}"
    for name, members in our_messages.items()
    for number in members
    if name in their_messages and number not in their_messages[name]
]
version = rstream_pb2.DESCRIPTOR.GetOptions().Extensions[rstream_pb2.protocol_version]
print(
    json.dumps(
        {
            "version": version,
            "compared": len(their_messages),
            "differences": differences,
            "additions": additions,
        }
    )
)
