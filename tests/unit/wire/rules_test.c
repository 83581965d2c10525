/* The table of rules against the protocol as it is: a field that was added or renamed shows here. */
#include "../test.h"

#include <string.h>

#include "wire/message_internal.h"

/* Prints where a mistake is before the check that ends the test. */
static void check_at(bool holds, const ProtobufCMessageDescriptor *type, const char *field, const char *what)
{
    if (!holds) {
        print_error("%s.%s: %s\n", type->short_name, field, what);
    }
    CHECK(holds);
}

static bool is_text_rule(const struct rule *rule)
{
    return rule->type >= RULE_ID && rule->type <= RULE_TEXT;
}

static bool fits_type(const struct rule *rule, const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return is_text_rule(rule) && rule->max > 0;
    case PROTOBUF_C_TYPE_BYTES:
        return (rule->type == RULE_BYTES || rule->type == RULE_TOKEN) && rule->max > 0;
    case PROTOBUF_C_TYPE_MESSAGE:
        return rule->type == RULE_MESSAGE && pb_descriptors[rule->sub] == field->descriptor;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_UINT64:
        return rule->type == RULE_NUMBER && rule->max > 0;
    case PROTOBUF_C_TYPE_BOOL:
        return rule->type == RULE_BOOL;
    case PROTOBUF_C_TYPE_ENUM:
        return rule->type == RULE_ENUM;
    case PROTOBUF_C_TYPE_DOUBLE:
        return rule->type == RULE_FRACTION;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_FLOAT:
    default:
        return false;
    }
}

TEST(every_field_of_the_protocol_has_its_rule)
{
    unsigned checked = 0;
    for (unsigned kind = 0; kind < PB_KIND_COUNT; kind++) {
        const ProtobufCMessageDescriptor *type = pb_descriptors[kind];
        const struct message_rules *rules = wire__rules((enum pb_kind)kind);
        check_at(rules->n_fields == type->n_fields, type, "*", "has another number of fields than rules");
        check_at(rules->fields_max > 0, type, "*", "has no limit on fields");
        for (unsigned i = 0; i < type->n_fields; i++) {
            const ProtobufCFieldDescriptor *field = &type->fields[i];
            const struct rule *rule = &rules->fields[i];
            bool is_repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
            check_at(strcmp(rule->field, field->name) == 0, type, field->name, rule->field);
            check_at(fits_type(rule, field), type, field->name, "the rule does not fit the type");
            check_at(is_repeated == (rule->count_max > 0), type, field->name, "repeated, or not?");
            check_at(!(is_repeated && rule->is_needed), type, field->name, "a list cannot be needed");
            check_at(!(is_repeated && rule->is_trimmed), type, field->name, "an element cannot be trimmed");
            checked++;
        }
    }
    CHECK(checked > 200);
}

TEST(only_texts_and_32_bit_numbers_are_trimmed)
{
    for (unsigned kind = 0; kind < PB_KIND_COUNT; kind++) {
        const ProtobufCMessageDescriptor *type = pb_descriptors[kind];
        for (unsigned i = 0; i < type->n_fields; i++) {
            const struct rule *rule = &wire__rules((enum pb_kind)kind)->fields[i];
            ProtobufCType of = type->fields[i].type;
            check_at(!rule->is_trimmed || rule->type == RULE_TEXT || of == PROTOBUF_C_TYPE_UINT32, type, rule->field,
                     "message.c cannot trim this");
        }
    }
}

TEST(values_of_enums_have_no_gaps)
{
    for (unsigned kind = 0; kind < PB_KIND_COUNT; kind++) {
        const ProtobufCMessageDescriptor *type = pb_descriptors[kind];
        for (unsigned i = 0; i < type->n_fields; i++) {
            if (type->fields[i].type == PROTOBUF_C_TYPE_ENUM) {
                const ProtobufCEnumDescriptor *values = type->fields[i].descriptor;
                for (unsigned v = 0; v < values->n_values; v++) {
                    CHECK_INT(values->values[v].value, v);
                }
            }
        }
    }
}

/* How many messages lie inside each other at most. A message that contains itself never comes back. */
static unsigned depth_of(const ProtobufCMessageDescriptor *type, unsigned above)
{
    CHECK(above < WIRE_DEPTH_MAX);
    unsigned deepest = 0;
    for (unsigned i = 0; i < type->n_fields; i++) {
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE) {
            unsigned depth = depth_of(type->fields[i].descriptor, above + 1);
            deepest = depth > deepest ? depth : deepest;
        }
    }
    return deepest + 1;
}

TEST(the_protocol_fits_into_the_frames_of_the_scan)
{
    for (unsigned kind = 0; kind < PB_KIND_COUNT; kind++) {
        CHECK(pb_descriptors[kind]->n_fields <= WIRE_FIELDS_MAX);
        CHECK(depth_of(pb_descriptors[kind], 0) <= WIRE_DEPTH_MAX);
    }
    CHECK(WIRE_FIELDS_MAX <= 32); /* they are bits of 32-bit numbers */
}

static bool needs(uint32_t mask, const char *field)
{
    const ProtobufCMessageDescriptor *type = pb_descriptors[PB_ATTEMPT_REF];
    for (unsigned i = 0; i < type->n_fields; i++) {
        if (strcmp(type->fields[i].name, field) == 0) {
            return (mask & 1u << i) != 0;
        }
    }
    return false;
}

TEST(what_a_reference_needs_is_named_by_the_right_bits)
{
    CHECK(needs(REF_JOB, "query_id"));
    CHECK(!needs(REF_JOB, "attempt"));
    CHECK(needs(REF_ATTEMPT, "query_id"));
    CHECK(needs(REF_ATTEMPT, "attempt"));
    CHECK(!needs(REF_ATTEMPT, "lease_token"));
    CHECK(needs(REF_LEASED, "query_id"));
    CHECK(needs(REF_LEASED, "attempt"));
    CHECK(needs(REF_LEASED, "lease_token"));
    CHECK(!needs(REF_LEASED, "stage_id"));
    CHECK(!needs(REF_LEASED, "task_id"));
}
