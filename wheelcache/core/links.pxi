# Doubly linked lists through the objects that are in them.

cdef struct Link:
    Link *prev
    Link *next  # NULL while in no list
    void *owner  # the entry; NULL for the head of a list


cdef inline void empty(Link *head) noexcept:
    head.prev = head.next = head
    head.owner = NULL


cdef inline void append(Link *head, Link *link) noexcept:
    link.prev = head.prev
    link.next = head
    head.prev.next = link
    head.prev = link


cdef inline void unlink(Link *link) noexcept:
    link.prev.next = link.next
    link.next.prev = link.prev
    link.next = NULL
