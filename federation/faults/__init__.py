"""Kinds of faults: their keys in scenarios, and their effects at a site or on links.

A site inflicts faults on itself (`site.faults`), and the relays carry out those on links (`relays`).

- `fault_kind`: the interface of a kind
- `kinds`: the kinds, one module each
"""
