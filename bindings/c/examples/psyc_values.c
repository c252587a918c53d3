/*
 * Renders a packet with a list, parses it, and reads its values: the list, an address, and the text of its method.
 * Everything is in memory of the program.
 */
#include <stdio.h>
#include <string.h>

#include <weir_psyc.h>

enum { EVENTS = 8, PARTS = 8 };

static weir_slice text(const char *from)
{
    return (weir_slice){(const uint8_t *)from, strlen(from)};
}

static void show(const char *what, weir_slice value)
{
    printf("%s %.*s\n", what, (int)value.len, (const char *)value.ptr);
}

/* Renders the packet. Returns its size in bytes, or 0. */
static size_t render(uint8_t *out, size_t capacity)
{
    uint8_t list[64];
    size_t size = 0;
    /* The second name has a length, because it has a byte that separates elements. */
    weir_psyc_item members[] = {{.value = text("gull")}, {.value = text("two|part")}};
    if (weir_psyc_render_list(text("_nick"), members, 2, WEIR_PSYC_THRESHOLD, list, sizeof list, &size, NULL) != WEIR_OK)
        return 0;
    weir_psyc_modifier routing[] = {
        {.operation = ':', .name = text("_source"), .value = text("psyc://lock.example/~heron")},
        {.operation = ':', .name = text("_context"), .value = text("psyc://lock.example/@reed")},
    };
    weir_psyc_modifier members_line = {.operation = ':', .name = text("_list_members"), .value = {list, size}};
    weir_psyc_packet packet = {.struct_size = sizeof packet, .routing = routing, .routing_count = 2,
                               .entity = &members_line, .entity_count = 1, .method = text("_notice_context_enter")};
    return weir_psyc_render(&packet, out, capacity, &size, NULL) == WEIR_OK ? size : 0;
}

static int read_list(weir_slice list)
{
    weir_psyc_cursor cursor = {.what = WEIR_PSYC_LIST};
    weir_psyc_part parts[PARTS];
    size_t count, used;
    int32_t done;
    do {
        done = weir_psyc_walk(&cursor, list, parts, PARTS, &count, &used, NULL);
        for (size_t at = 0; done > 0 && at < count; at++)
            if (parts[at].kind == WEIR_PSYC_ELEM)
                show("member", parts[at].value);
        if (done > 0)
            list = (weir_slice){list.ptr + used, list.len - used};
    } while (done == WEIR_OK);
    return done == WEIR_DONE;
}

static int read_event(const weir_psyc_event *event, weir_psyc_binding *bindings, size_t *count)
{
    weir_psyc_uniform address = {.struct_size = sizeof address};
    weir_psyc_name name = {.struct_size = sizeof name};
    weir_psyc_template template = {.struct_size = sizeof template};
    weir_psyc_cursor cursor = {.what = WEIR_PSYC_TEXT};
    uint8_t out[128];
    size_t written;
    switch (event->kind) {
    case WEIR_PSYC_ROUTING:
        bindings[(*count)++] = (weir_psyc_binding){event->name, event->value};
        if (weir_psyc_parse_uniform(event->value, 0, &address, NULL) != WEIR_OK)
            return 0;
        show(address.kind == WEIR_PSYC_PERSON ? "person" : "place", address.nick);
        return 1;
    case WEIR_PSYC_ENTITY:
        if (weir_psyc_describe_name(event->name, &name, NULL) != WEIR_OK || !(name.flags & WEIR_PSYC_IS_LIST))
            return 0;
        return read_list(event->value);
    case WEIR_PSYC_BODY:
        if (weir_psyc_standard_template(event->name, &template.text, NULL) != WEIR_OK ||
            weir_psyc_render_text(&template, &cursor, bindings, *count, out, sizeof out, &written, NULL) != WEIR_DONE)
            return 0;
        show("text:", (weir_slice){out, written});
        return 1;
    default:
        return event->kind == WEIR_PSYC_COMPLETE;
    }
}

int main(void)
{
    uint8_t bytes[512];
    weir_psyc_parser parser = {.struct_size = sizeof parser};
    weir_psyc_event events[EVENTS];
    weir_psyc_binding bindings[EVENTS];
    size_t size = render(bytes, sizeof bytes), count, used, bound = 0;
    if (!size || weir_psyc_parser_init(&parser, NULL, NULL) != WEIR_OK ||
        weir_psyc_parser_read(&parser, (weir_slice){bytes, size}, events, EVENTS, &count, &used, NULL) != WEIR_READY)
        return 1;
    for (size_t at = 0; at < count; at++)
        if (!read_event(&events[at], bindings, &bound))
            return 1;
    return 0;
}
